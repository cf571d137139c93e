#include "gpu/threads/near_cpus.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <sched.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string_view>

#include "gpu/torch_error.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

// A mask of the system for more CPUs than cpu_set_t has.
class CpuMask {
 public:
  CpuMask() : mask_(CPU_ALLOC(kMostCpus)) { CPU_ZERO_S(bytes(), mask_.get()); }
  static std::size_t bytes() { return CPU_ALLOC_SIZE(kMostCpus); }
  cpu_set_t* get() const { return mask_.get(); }
  void add(int cpu) { CPU_SET_S(static_cast<std::size_t>(cpu), bytes(), mask_.get()); }
  bool has(int cpu) const {
    return CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes(), mask_.get()) != 0;
  }

 private:
  struct Free {
    void operator()(cpu_set_t* mask) const { CPU_FREE(mask); }
  };
  std::unique_ptr<cpu_set_t, Free> mask_;
};

Error system_error(const std::string& what) {
  return {Errc::failed, what + ": " + std::strerror(errno)};
}

// Of "7" or "4-7".
bool add_range(std::string_view text, CpuSet& cpus) {
  const std::size_t dash = text.find('-');
  const auto first = number_in<int>(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number_in<int>(text.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first || *last >= kMostCpus) return false;
  for (int cpu = *first; cpu <= *last; ++cpu) cpus.insert(cpu);
  return true;
}

Expected<CpuSet> local_cpus(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in || text.str().empty()) return Error{Errc::unavailable, file.string() + " cannot be read"};
  auto cpus = parse_cpus(text.str());
  if (cpus) return *std::move(cpus);
  return Error{Errc::unavailable, file.string() + " is no list of CPUs"};
}

Expected<void> bind_backward_thread(DeviceRuntime& runtime, const CpuSet& cpus) {
  const auto scope = runtime.enter(Stream::compute);
  const at::AutoGradMode with_grad(true);
  const at::Tensor x = at::ones({1}, at::TensorOptions(at::kFloat).device(runtime.device()));
  x.requires_grad_(true);
  const at::Tensor y = x * 2;
  Expected<void> bound;
  y.register_hook([&](const at::Tensor&) { bound = bind_thread(cpus); });
  torch::autograd::grad({y}, {x});
  return bound;
}

}  // namespace

std::optional<CpuSet> parse_cpus(const std::string& text) {
  CpuSet cpus;
  std::string_view rest = text;
  if (!rest.empty() && rest.back() == '\n') rest.remove_suffix(1);
  if (rest.empty()) return cpus;
  for (;;) {
    const std::size_t comma = rest.find(',');
    if (!add_range(rest.substr(0, comma), cpus)) return std::nullopt;
    if (comma == std::string_view::npos) return cpus;
    rest.remove_prefix(comma + 1);
  }
}

std::string cpus_text(const CpuSet& cpus) {
  std::string text;
  for (auto first = cpus.begin(); first != cpus.end();) {
    auto last = first;
    while (std::next(last) != cpus.end() && *std::next(last) == *last + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(*first);
    if (last != first) text += '-' + std::to_string(*last);
    first = std::next(last);
  }
  return text;
}

Expected<CpuSet> thread_cpus() {
  const CpuMask mask;
  if (::sched_getaffinity(0, CpuMask::bytes(), mask.get()) != 0)
    return system_error("the CPUs of this thread are not known");
  CpuSet cpus;
  for (int cpu = 0; cpu < kMostCpus; ++cpu)
    if (mask.has(cpu)) cpus.insert(cpu);
  return cpus;
}

Expected<void> bind_thread(const CpuSet& cpus) {
  CpuMask mask;
  for (const int cpu : cpus) mask.add(cpu);
  if (::sched_setaffinity(0, CpuMask::bytes(), mask.get()) == 0) return {};
  return system_error("binding a thread to CPUs " + cpus_text(cpus));
}

Expected<CpuSet> near_cpus(at::Device device, const std::filesystem::path& pci_devices) {
  const auto address = pci_address(device);
  if (!address) return address.error();
  const auto local = local_cpus(pci_devices / *address / "local_cpulist");
  if (!local) return local.error();
  const auto own = thread_cpus();
  if (!own) return own.error();
  CpuSet near;
  std::set_intersection(own->begin(), own->end(), local->begin(), local->end(),
                        std::inserter(near, near.end()));
  if (near.empty())
    return Error{Errc::unavailable, "this process may not use the CPUs near " + device.str() +
                                        " (" + cpus_text(*local) + ")"};
  if (near == *own)
    return Error{Errc::unavailable, "all CPUs of this process are equally near " + device.str()};
  return near;
}

bool are_enough(const CpuShares& shares, std::size_t least) {
  return shares.near >= least * shares.shared ||
         2 * shares.near * shares.all >= shares.own * shares.shared;
}

std::vector<Expected<CpuSet>> near_cpus_of_each(const std::vector<at::Device>& devices,
                                                std::size_t least,
                                                const std::filesystem::path& pci_devices) {
  std::vector<Expected<CpuSet>> each;
  std::map<CpuSet, std::size_t> users;
  for (const at::Device device : devices) {
    each.push_back(near_cpus(device, pci_devices));
    if (each.back()) ++users[*each.back()];
  }
  const auto own = thread_cpus();
  for (std::size_t i = 0; own && i < devices.size(); ++i) {
    if (!each[i]) continue;
    const CpuSet& near = *each[i];
    const std::size_t shared = users.at(near);
    if (are_enough({own->size(), devices.size(), near.size(), shared}, least)) continue;
    each[i] =
        Error{Errc::unavailable, "of this process only CPUs " + cpus_text(near) + " are near " +
                                     devices[i].str() + ", too few for the threads of " +
                                     std::to_string(shared) + " workers or replicas"};
  }
  return each;
}

int threads_within(int threads, const std::vector<CpuSet>& sets) {
  for (const CpuSet& cpus : sets) threads = std::min(threads, static_cast<int>(cpus.size()));
  return threads;
}

Expected<void> bind_launching_threads(DeviceRuntime& runtime, const CpuSet& cpus) {
  try {
    if (auto bound = bind_backward_thread(runtime, cpus); !bound) return bound;
  } catch (const std::exception& e) {
    return Error{Errc::failed, "the thread of backward passes was not bound: " + one_line(e)};
  }
  return bind_thread(cpus);
}

}  // namespace grapevine
