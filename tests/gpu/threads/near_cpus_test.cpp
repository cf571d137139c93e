// CPUs near a GPU, with folders of the test in place of the system's.
#include "gpu/threads/near_cpus.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/lazy_device.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace near_cpus_test {

const at::Device kGpu(at::kCUDA, 1);
const std::string kAddress = "0000:3b:00.0";

TEST(CpuLists, AreThoseOfTheKernel) {
  EXPECT_EQ(parse_cpus("0-3,8,10-11\n"), (CpuSet{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_cpus("7"), CpuSet{7});
  EXPECT_EQ(parse_cpus("8191"), CpuSet{8191});
  EXPECT_EQ(parse_cpus("\n"), CpuSet{});
  EXPECT_EQ(parse_cpus(""), CpuSet{});
  EXPECT_EQ(cpus_text({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(cpus_text({}), "");
  for (const char* other : {",", "0,", ",0", "3-1", "-1", "1-", "-", "a", "0 1", "0-3:1/2", "8192",
                            "0-8192", "99999999999", "0x1", "1\n\n", " 1", "1-2-3"})
    EXPECT_EQ(parse_cpus(other), std::nullopt) << other;
}

TEST(CpuLists, OfAnySetAreReadAsThatSet) {
  constexpr std::uint64_t kSeed = 20;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 500; ++i) {
    const int most = i % 2 == 0 ? 24 : kMostCpus;
    CpuSet cpus;
    const std::size_t count = random() % 20;
    for (std::size_t j = 0; j < count; ++j)
      cpus.insert(static_cast<int>(random() % static_cast<std::uint64_t>(most)));
    const std::string text = cpus_text(cpus);
    EXPECT_EQ(parse_cpus(text), cpus) << text;
    EXPECT_EQ(parse_cpus(text + "\n"), cpus) << text;
    // No two neighbours are apart, so that no shorter list exists.
    EXPECT_EQ(
        std::count(text.begin(), text.end(), ',') + (cpus.empty() ? 0 : 1),
        std::count_if(cpus.begin(), cpus.end(), [&](int cpu) { return cpus.count(cpu - 1) == 0; }))
        << text;
  }
}

// What `work` returns on a thread that ends with it, so that its binding does, too.
template <class Result>
Result on_a_thread(const std::function<Result()>& work) {
  Result result = Error{};
  std::thread([&] { result = work(); }).join();
  return result;
}

class NearCpus : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("near_cpus_test-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_ / kAddress);
    GpuDriver driver;
    driver.pci_address = [this](int gpu) -> Expected<std::string> {
      asked_ = gpu;
      return kAddress;
    };
    register_cuda_driver(std::move(driver));
    own_ = thread_cpus().value();
  }
  void TearDown() override {
    register_cuda_driver({});
    std::filesystem::remove_all(folder_);
  }

  void write(const std::string& list) const {
    std::ofstream(folder_ / kAddress / "local_cpulist") << list;
  }
  // Of `users` of the GPU, what the first one gets, or why it gets none.
  std::string of_each(std::size_t users, std::size_t least) const {
    const auto each = near_cpus_of_each(std::vector<at::Device>(users, kGpu), least, folder_);
    EXPECT_EQ(each.size(), users);
    return each.front() ? "CPUs " + cpus_text(*each.front()) : each.front().error().message;
  }
  std::string why_not() const {
    const auto near = near_cpus(kGpu, folder_);
    return near ? "CPUs " + cpus_text(*near) : near.error().message;
  }
  int first() const { return *own_.begin(); }

  std::filesystem::path folder_;
  CpuSet own_;
  int asked_ = -1;
};

TEST_F(NearCpus, AreThoseOfTheThreadThatTheSystemLists) {
  if (own_.size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  write(std::to_string(first()) + ",8000\n");
  EXPECT_EQ(near_cpus(kGpu, folder_).value(), CpuSet{first()});
  EXPECT_EQ(asked_, kGpu.index());
}

TEST_F(NearCpus, NothingIsChosenWithoutAReason) {
  write("8000-8001\n");
  EXPECT_EQ(why_not(), "this process may not use the CPUs near cuda:1 (8000-8001)");
  write("\n");
  EXPECT_EQ(why_not(), "this process may not use the CPUs near cuda:1 ()");
  for (const std::string& all : {cpus_text(own_) + "\n", std::string("0-8191\n")}) {
    write(all);
    EXPECT_EQ(why_not(), "all CPUs of this process are equally near cuda:1");
  }
  const std::string file = (folder_ / kAddress / "local_cpulist").string();
  write("ff,00\n");
  EXPECT_EQ(why_not(), file + " is no list of CPUs");
  std::filesystem::remove(file);
  EXPECT_EQ(why_not(), file + " cannot be read");
  register_cuda_driver({});
  EXPECT_EQ(why_not(), "the PCI address of cuda:1 is not known");
  EXPECT_FALSE(near_cpus(at::kCPU, folder_).ok());
}

// A scheduler gave this process one node: the other one's CPUs are not chosen.
TEST_F(NearCpus, AThreadThatIsBoundKeepsItsBinding) {
  if (own_.size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  const int second = *std::next(own_.begin());
  write(std::to_string(second) + "\n");
  EXPECT_EQ(near_cpus(kGpu, folder_).value(), CpuSet{second});
  const auto found = on_a_thread<Expected<CpuSet>>([&]() -> Expected<CpuSet> {
    if (auto bound = bind_thread({first()}); !bound) return bound.error();
    return near_cpus(kGpu, folder_);
  });
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message.rfind("this process may not use the CPUs near cuda:1", 0), 0U)
      << found.error().message;
}

TEST(NearCpusOfDevices, AreEnoughOrAsManyAsWithoutABinding) {
  // A set of 16 CPUs that its scheduler did not align with the nodes: one of them is near.
  EXPECT_FALSE(are_enough({16, 1, 1, 1}, 4));
  EXPECT_FALSE(are_enough({16, 2, 1, 1}, 4));
  EXPECT_TRUE(are_enough({16, 1, 4, 1}, 4));
  EXPECT_FALSE(are_enough({64, 2, 7, 2}, 4)) << "two devices share them";
  EXPECT_TRUE(are_enough({64, 2, 8, 2}, 4));
  // Two nodes of equal size, with as many devices each; a device beside one of two nodes.
  EXPECT_TRUE(are_enough({64, 8, 32, 4}, 20));
  EXPECT_TRUE(are_enough({64, 1, 32, 1}, 64));
  EXPECT_TRUE(are_enough({2, 1, 1, 1}, 4));
  EXPECT_TRUE(are_enough({8, 8, 4, 4}, 4));
  EXPECT_FALSE(are_enough({64, 8, 15, 4}, 4)) << "less than half of their share";
}

TEST_F(NearCpus, OfEachDeviceAreRefusedWhereTheyAreTooFew) {
  if (own_.size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  write(std::to_string(first()) + "\n");
  const std::string one = "CPUs " + std::to_string(first());
  EXPECT_EQ(of_each(1, 1), one);
  const std::string refused =
      "of this process only " + one + " are near cuda:1, too few for the threads of ";
  if (own_.size() > 2) {  // of two, one is half
    EXPECT_EQ(of_each(1, 2), refused + "1 workers or replicas");
    EXPECT_EQ(of_each(3, 1), refused + "3 workers or replicas");
  }
  write("\n");
  EXPECT_EQ(of_each(2, 1), "this process may not use the CPUs near cuda:1 ()");
}

TEST(CpuLists, LimitTheThreadsOfAnOperation) {
  EXPECT_EQ(threads_within(8, {}), 8);
  EXPECT_EQ(threads_within(8, {{0, 1, 2}, {4, 9}}), 2);
  EXPECT_EQ(threads_within(3, {{0, 1, 2}, {4, 5, 6, 7}}), 3);
  EXPECT_EQ(threads_within(1, {{0, 1, 2}}), 1);
}

TEST(BoundThread, RunsWhereItIsBoundAndSoDoThreadsThatItCreates) {
  const CpuSet own = thread_cpus().value();
  if (own.size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  const CpuSet one = {*own.rbegin()};
  using Cpus = Expected<CpuSet>;
  EXPECT_EQ(on_a_thread<Cpus>([&]() -> Cpus {
              if (auto bound = bind_thread(one); !bound) return bound.error();
              return on_a_thread<Cpus>(thread_cpus);
            }).value(),
            one);
  EXPECT_EQ(on_a_thread<Cpus>([&]() -> Cpus {
              if (auto bound = bind_thread(one); !bound) return bound.error();
              if (auto bound = bind_thread(own); !bound) return bound.error();
              return thread_cpus();
            }).value(),
            own);
  EXPECT_EQ(thread_cpus().value(), own) << "other threads are bound as before";
}

TEST(BoundThread, IsAsBeforeWhereThereAreNoSuchCpus) {
  const CpuSet own = thread_cpus().value();
  for (const CpuSet& none : {CpuSet{kMostCpus - 1}, CpuSet{}}) {
    EXPECT_FALSE(bind_thread(none).ok());
    EXPECT_EQ(thread_cpus().value(), own);
  }
}

// The CPUs of the thread on which LibTorch computes the backward passes on the device.
CpuSet cpus_of_backward(DeviceRuntime& runtime) {
  const auto scope = runtime.enter(Stream::compute);
  const at::Tensor x = at::ones({1}, at::TensorOptions(at::kFloat).device(runtime.device()));
  x.requires_grad_(true);
  const at::Tensor y = x + x;
  CpuSet cpus;
  y.register_hook([&](const at::Tensor&) { cpus = thread_cpus().value(); });
  torch::autograd::grad({y}, {x});
  return cpus;
}

// It is one for all threads of the process, and was created by another thread than those that
// compute later.
TEST(LaunchingThreads, AreThatOfTheCallerAndThatOfBackwardPasses) {
  const CpuSet own = thread_cpus().value();
  if (own.size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  fake::reset();
  const auto runtime = fake::open_device(0, "near_cpus_test");
  const CpuSet before = cpus_of_backward(*runtime);
  for (const int cpu : own) {
    std::thread([&] {
      const auto bound = bind_launching_threads(*runtime, {cpu});
      EXPECT_TRUE(bound.ok()) << bound.error().message;
      EXPECT_EQ(thread_cpus().value(), CpuSet{cpu});
    }).join();
    EXPECT_EQ(cpus_of_backward(*runtime), CpuSet{cpu});
    EXPECT_EQ(thread_cpus().value(), own);
  }
  std::thread([&] { EXPECT_TRUE(bind_launching_threads(*runtime, before).ok()); }).join();
  EXPECT_EQ(cpus_of_backward(*runtime), before);
  EXPECT_EQ(fake::violations(), std::vector<std::string>());
}

// In a process in which no gradient was computed yet, as LibTorch creates the threads of all
// devices with the first one.
[[noreturn]] void bind_for_one_of_two_devices() {
  const CpuSet own = thread_cpus().value();
  const auto bound = fake::open_device(0, "bound"), free = fake::open_device(1, "free");
  const CpuSet one = {*own.begin()};
  bool done = false;
  std::thread([&] { done = bind_launching_threads(*bound, one).ok(); }).join();
  const bool right = done && cpus_of_backward(*bound) == one && cpus_of_backward(*free) == own;
  std::_Exit(right ? 0 : 1);
}

TEST(LaunchingThreads, OfADeviceWithoutABindingKeepTheCpusOfTheProcess) {
  if (thread_cpus().value().size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(bind_for_one_of_two_devices(), testing::ExitedWithCode(0), "");
}

TEST(LaunchingThreads, AreBoundByTheFirstGradient) {
  const CpuSet own = thread_cpus().value();
  if (own.size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  for (const bool possible : {true, false}) {
    TorchComputeConfig config = tiny_config(tiny_layers, 1, 2, 12);
    config.runtime = std::make_shared<LazyDevice>();
    config.near_cpus = {possible ? *own.begin() : kMostCpus - 1};
    const auto compute = make_tiny(std::move(config));
    EXPECT_EQ(thread_cpus().value(), own) << "of the thread that makes it";
    const auto unbound = make_tiny(tiny_config(tiny_layers, 1, 2, 12));
    const FrozenTensor z = compute->initial_parameters();
    std::thread([&] {
      const Gradient expected = unbound->gradient(tiny_request(z));
      EXPECT_EQ(thread_cpus().value(), own);
      for (int i = 0; i < 2; ++i) {
        const Gradient found = compute->gradient(tiny_request(z));
        EXPECT_EQ(found.error, "");
        EXPECT_TRUE(at::equal(found.value.read(), expected.value.read()));
        EXPECT_EQ(thread_cpus().value(), possible ? CpuSet{*own.begin()} : own);
      }
    }).join();
  }
}

}  // namespace near_cpus_test
}  // namespace grapevine
