#include "algorithms/state_dict.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "messages/check.hpp"

namespace grapevine {
namespace {

template <class T>
constexpr const char* kind_name() {
  if constexpr (std::is_same_v<T, at::Tensor>) return "a tensor";
  if constexpr (std::is_same_v<T, double>) return "a number";
  if constexpr (std::is_same_v<T, std::int64_t>) return "an integer";
  if constexpr (std::is_same_v<T, std::string>) return "a text";
}

constexpr const char* kAdvice =
    "the checkpoint is of another wiring or version: resume with the wiring that wrote it, or "
    "start "
    "without --resume";

Error damaged(const std::string& name, const std::string& what) {
  return bad_input("entry '" + name + "' of the saved state " + what +
                   ": the checkpoint is damaged, resume from another one");
}

template <class T>
Expected<T> find(const std::map<std::string, StateValue>& entries, const std::string& name) {
  const auto found = entries.find(name);
  if (found == entries.end())
    return bad_input("saved state has no entry '" + name + "' (" + kind_name<T>() +
                     "): " + kAdvice);
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  const char* actual = std::visit(
      [](const auto& value) { return kind_name<std::decay_t<decltype(value)>>(); }, found->second);
  return bad_input("entry '" + name + "' of the saved state is " + actual + ", expected " +
                   kind_name<T>() + ": " + kAdvice);
}

}  // namespace

void StateDict::put(const std::string& name, StateValue value) {
  entries_.insert_or_assign(name, std::move(value));
}

void StateDict::put_all(const std::string& prefix, const StateDict& inner) {
  for (const auto& [name, value] : inner.entries_) put(prefix + "." + name, value);
}

void StateDict::put_list(const std::string& name, const std::vector<std::int64_t>& values) {
  put(name, at::tensor(values, at::kLong));
}

Expected<at::Tensor> StateDict::tensor(const std::string& name) const {
  return find<at::Tensor>(entries_, name);
}

Expected<double> StateDict::number(const std::string& name) const {
  return find<double>(entries_, name);
}

Expected<std::int64_t> StateDict::integer(const std::string& name) const {
  return find<std::int64_t>(entries_, name);
}

Expected<std::int64_t> StateDict::integer_in(const std::string& name, std::int64_t least,
                                             std::int64_t most) const {
  auto value = integer(name);
  if (!value || (*value >= least && *value <= most)) return value;
  return damaged(name, "is " + std::to_string(*value) + ", outside " + std::to_string(least) +
                           ".." + std::to_string(most));
}

Expected<std::vector<std::int64_t>> StateDict::list(const std::string& name) const {
  const auto found = tensor(name);
  if (!found) return found.error();
  if (found->scalar_type() != at::kLong || found->dim() != 1)
    return damaged(name, "is no list of whole numbers");
  const at::Tensor values = found->contiguous();
  const auto* data = values.data_ptr<std::int64_t>();
  return std::vector<std::int64_t>(data, data + values.numel());
}

Expected<at::Tensor> StateDict::flat_tensor(const std::string& name, std::int64_t d) const {
  auto found = tensor(name);
  if (!found) return found;
  if (found->scalar_type() != at::kFloat || found->dim() != 1 || found->numel() != d)
    return damaged(name, "is no flat float32 tensor of " + std::to_string(d));
  return found->contiguous();
}

Expected<std::string> StateDict::text(const std::string& name) const {
  return find<std::string>(entries_, name);
}

StateDict StateDict::under(const std::string& prefix) const {
  const std::string start = prefix + ".";
  StateDict inner;
  inner.device_ = device_;
  inner.ready_ = ready_;
  for (auto entry = entries_.lower_bound(start); entry != entries_.end(); ++entry) {
    if (entry->first.compare(0, start.size(), start) != 0) break;
    inner.put(entry->first.substr(start.size()), entry->second);
  }
  return inner;
}

StateDict StateDict::for_device(at::Device device) && {
  device_ = device;
  return std::move(*this);
}

void StateDict::mark_ready() {
  for (const auto& [name, value] : entries_) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (tensor == nullptr || tensor->is_cpu()) continue;
    ready_ = ReadyEvent::record(tensor->device());  // a rank has one device
    return;
  }
}

StateDict StateDict::on_host() const {
  StateDict host;
  host.device_ = device_;
  for (const auto& [name, value] : entries_) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (tensor != nullptr && !tensor->is_cpu()) {
      GRAPEVINE_CHECK(ready_ != nullptr, "entry '", name, "' is on ", tensor->device(),
                      ", and mark_ready() was not called");
      ready_->wait_in(current_stream(tensor->device()));
      host.put(name, tensor->to(at::kCPU));
    } else {
      host.put(name, value);
    }
  }
  return host;
}

}  // namespace grapevine
