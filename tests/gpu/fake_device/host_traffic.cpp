#include "tests/gpu/fake_device/host_traffic.hpp"

#include <ATen/ATen.h>
#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace grapevine::fake {
namespace {

// One call of an operator.
struct CallFrame final : at::ObserverContext {
  CallFrame* outer = nullptr;  // the call that made this one
  bool on_device = false;      // it, or one that it is part of, works on a device
  std::vector<bool> fresh;     // results, by place: in memory of their own
  HostBytes bytes;
  HostBytes parts;  // of the calls that it made
};

struct ThreadTraffic {
  CallFrame* current = nullptr;
  HostBytes bytes;
};

ThreadTraffic& traffic_of_thread() {
  thread_local ThreadTraffic traffic;
  return traffic;
}

std::uint64_t bytes_of(const at::Tensor& t) {
  return static_cast<std::uint64_t>(t.numel()) * t.element_size();
}

bool begins_with(const std::string& text, const std::string& part) {
  return text.rfind(part, 0) == 0;
}

// Whether the argument is written without being read. The names are those of the schemas.
bool is_output(const std::string& name, const c10::Argument& argument) {
  const std::string& as = argument.name();
  if (as == "out" || as == "half" || as == "z") return true;
  return as == "self" && (name == "aten::copy_" || name == "aten::fill_" || name == "aten::zero_");
}

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  return {};
}

void add_operands(const at::RecordFunction& call, const c10::FunctionSchema& schema,
                  CallFrame& frame) {
  const auto& inputs = call.inputs();
  for (std::size_t i = 0; i < inputs.size() && i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const auto* const alias = argument.alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    for (const at::Tensor& t : tensors_in(inputs[i])) {
      if (!t.defined()) continue;
      if (!t.device().is_cpu()) frame.on_device = true;
      if (written) frame.bytes.written += bytes_of(t);
      if (!written || !is_output(schema.name(), argument)) frame.bytes.read += bytes_of(t);
    }
  }
}

void measure(const at::RecordFunction& call, CallFrame& frame) {
  const auto schema = call.operator_schema();
  if (!schema || begins_with(schema->name(), "aten::empty")) return;  // memory alone
  for (const c10::Argument& result : schema->returns()) {
    const auto* const alias = result.alias_info();
    if (alias != nullptr && !alias->isWrite()) return;  // a view
    frame.fresh.push_back(alias == nullptr);
  }
  add_operands(call, *schema, frame);
}

std::unique_ptr<at::ObserverContext> begin_call(const at::RecordFunction& call) {
  ThreadTraffic& traffic = traffic_of_thread();
  auto frame = std::make_unique<CallFrame>();
  frame->outer = traffic.current;
  frame->on_device = frame->outer != nullptr && frame->outer->on_device;
  if (!frame->on_device) measure(call, *frame);
  traffic.current = frame.get();
  return frame;
}

void end_call(const at::RecordFunction& call, at::ObserverContext* context) {
  auto& frame = static_cast<CallFrame&>(*context);
  ThreadTraffic& traffic = traffic_of_thread();
  traffic.current = frame.outer;
  if (frame.on_device) return;
  const auto& outputs = call.outputs();
  for (std::size_t i = 0; i < outputs.size() && i < frame.fresh.size(); ++i)
    for (const at::Tensor& t : tensors_in(outputs[i]))
      if (frame.fresh[i] && t.defined() && t.device().is_cpu()) frame.bytes.written += bytes_of(t);
  HostBytes& sum = frame.outer != nullptr ? frame.outer->parts : traffic.bytes;
  sum.read += std::max(frame.bytes.read, frame.parts.read);
  sum.written += std::max(frame.bytes.written, frame.parts.written);
}

std::uint64_t watch_operators() {
  traffic_of_thread() = {};
  return at::addThreadLocalCallback(at::RecordFunctionCallback(begin_call, end_call)
                                        .needsInputs(true)
                                        .needsOutputs(true)
                                        .scopes({at::RecordScope::FUNCTION}));
}

}  // namespace

HostTraffic::HostTraffic() : callback_(watch_operators()) {}

HostTraffic::~HostTraffic() { at::removeCallback(callback_); }

HostBytes HostTraffic::bytes() const { return traffic_of_thread().bytes; }

}  // namespace grapevine::fake
