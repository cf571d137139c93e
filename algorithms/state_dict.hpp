// StateDict: the state of a role or part in a checkpoint.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "messages/device/ready_event.hpp"
#include "messages/expected.hpp"

namespace grapevine {

using StateValue = std::variant<at::Tensor, double, std::int64_t, std::string>;

// Ordered by name, so that equal states give equal files. The caller copies tensors that it
// changes later.
class StateDict {
 public:
  void put(const std::string& name, StateValue value);
  // Puts all of `inner` under "<prefix>.".
  void put_all(const std::string& prefix, const StateDict& inner);

  // A list of whole numbers, as a tensor [n] int64.
  void put_list(const std::string& name, const std::vector<std::int64_t>& values);

  // Errors (Errc::bad_input) name the entry that is missing or has another type.
  Expected<at::Tensor> tensor(const std::string& name) const;
  Expected<double> number(const std::string& name) const;
  Expected<std::int64_t> integer(const std::string& name) const;
  // One that lies in [least, most].
  Expected<std::int64_t> integer_in(const std::string& name, std::int64_t least,
                                    std::int64_t most) const;
  Expected<std::string> text(const std::string& name) const;
  Expected<std::vector<std::int64_t>> list(const std::string& name) const;
  // [d] float32.
  Expected<at::Tensor> flat_tensor(const std::string& name, std::int64_t d) const;
  // The entries under "<prefix>.", without it.
  StateDict under(const std::string& prefix) const;

  const std::map<std::string, StateValue>& entries() const { return entries_; }

  // Where the model is of the object that loads this: its vectors go there (Archive).
  at::Device device() const { return device_; }
  StateDict for_device(at::Device device) &&;

  // Tensors on a device are complete after this thread's current streams of now; others may then
  // call on_host().
  void mark_ready();
  // All tensors in the host's memory; those on a device are copied, which the host waits for.
  // REQUIRES: mark_ready() was called after the last of those was put.
  StateDict on_host() const;

 private:
  std::map<std::string, StateValue> entries_;
  at::Device device_ = at::kCPU;
  std::shared_ptr<const ReadyEvent> ready_;  // null: all tensors are in the host's memory
};

}  // namespace grapevine
