// The operators of the fake device: the CPU's, on aliases of the operands.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/fake_device/graph.hpp"
#include "tests/gpu/fake_device/streams.hpp"

namespace grapevine::fake {
namespace {

using Stack = torch::jit::Stack;

bool on_device(const at::Tensor& t) { return t.defined() && t.device().type() == at::kXPU; }

Block* block_of(const at::Tensor& t) {
  return static_cast<Block*>(t.storage().data_ptr().get_context());
}

Access access_to(const at::Tensor& t) { return Place::of(t).access(); }

void free_block(void* block) { release(static_cast<Block*>(block)); }

at::Tensor tensor_on(c10::Storage storage, c10::DispatchKey key, at::IntArrayRef sizes,
                     at::IntArrayRef strides, std::int64_t offset, caffe2::TypeMeta type) {
  at::Tensor t =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), type);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  t.unsafeGetTensorImpl()->set_storage_offset(offset);
  return t;
}

c10::Storage storage_on(std::size_t bytes, int index, std::optional<std::size_t> stream) {
  Block* const block = allocate(bytes, index, stream);
  if (!stream)
    allocated_without_stream(block);
  else if (Recording* const capture = recording_in(*stream))
    capture->allocated(block);
  return {c10::Storage::use_byte_size_t(), bytes,
          c10::DataPtr(block->shown, block, &free_block, device(index))};
}

at::Tensor alias_on_host(const at::Tensor& t) { return Place::of(t).alias(); }

// An operator call of a capture.
struct RecordedCall {
  // A tensor that the operator made: an operand with a new size, or a result, or an item of one
  // that is a list.
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Made {
    static Made from_operand(std::size_t i) { return {i, kNone, kNone, {}}; }
    static Made from_result(std::size_t i, std::size_t item = kNone) {
      return {kNone, i, item, {}};
    }
    std::size_t operand, result, item;
    Place place;
  };

  const at::Tensor& of(const at::Tensor& then) const {
    for (const auto& [before, now] : tensors)
      if (before.is_same(then)) return now;
    return then;
  }
  c10::IValue of(const c10::IValue& then) const {
    if (then.isTensor()) return of(then.toTensor());
    if (then.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : then.toTensorVector()) list.push_back(of(t));
      return list;
    }
    if (!then.isOptionalTensorList()) return then;
    c10::List<c10::optional<at::Tensor>> list;
    for (const auto& t : then.toOptionalTensorVector())
      list.push_back(t ? c10::optional<at::Tensor>(of(*t)) : t);
    return list;
  }
  at::Tensor made_now(const Made& each, const Stack& stack) const {
    if (each.operand != kNone) return tensors[each.operand].second;
    const c10::IValue& value = stack[each.result];
    return each.item == kNone ? value.toTensor() : value.toTensorVector()[each.item];
  }

  // On the same memory, and with the same numbers of the host.
  void run() {
    for (std::size_t i = 0; i < operands.size(); ++i) tensors[i].second = operands[i].alias();
    Stack stack;
    for (const c10::IValue& each : arguments) stack.push_back(of(each));
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    for (const Made& each : made) each.place.alias().copy_(made_now(each, stack));
    for (std::size_t i = 0; i < operands.size(); ++i) tensors[i].second.reset();
  }

  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;
  std::vector<Place> operands;
  // What stood in `arguments`, and what takes its place: first the operands, then tensors of the
  // host.
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors;
  std::vector<Made> made;
};

// One operator call.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack) : op_(op), stack_(stack) {
    name_ = op.schema().name();
    if (!op.schema().overload_name().empty()) name_ += "." + op.schema().overload_name();
  }

  void run() {
    const at::AutoDispatchBelowADInplaceOrView below;
    replace_arguments();
    refuse_host_operands();
    if (device_ < 0) device_ = c10::impl::getDeviceGuardImpl(at::kXPU)->getDevice().index();
    stream_ = stream_of_operation(device_, written_operand());
    if (!is_allocation() && !is_view()) {
      begin_recording();
      order().run(name_, stream_, histories(false), histories(true));
    }
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack_);
    adopt_new_sizes();
    replace_results();
    end_recording();
  }

 private:
  struct Operand {
    at::Tensor original;
    at::Tensor alias;
    bool written = false;
  };

  bool is_allocation() const { return name_.rfind("aten::empty", 0) == 0; }

  // Of a call in a stream that captures.
  void begin_recording() {
    recording_ = recording_in(stream_);
    if (recording_ == nullptr) return;
    const std::size_t begin = stack_->size() - op_.schema().arguments().size();
    recorded_ = std::make_shared<RecordedCall>(RecordedCall{
        op_, {stack_->begin() + static_cast<std::ptrdiff_t>(begin), stack_->end()}, {}, {}, {}});
    for (const c10::IValue& each : recorded_->arguments)
      if (each.isGenerator()) recording_->refuse(name_ + " with a generator");
    for (const at::Tensor& t : host_operands_)
      if (t.dim() > 0) recording_->refuse(name_ + " with an operand on the host");
    for (const Operand& each : operands_) {
      recorded_->operands.push_back(Place::of(each.original));
      recorded_->tensors.emplace_back(each.alias, at::Tensor());
      recording_->use(recorded_->operands.back(), each.written);
    }
    for (const at::Tensor& t : host_operands_) recorded_->tensors.emplace_back(t, t.clone());
  }

  // A tensor that the call made, and where it lies.
  void record_made(RecordedCall::Made made, const at::Tensor& t) {
    if (recorded_ == nullptr || t.numel() == 0) return;
    made.place = Place::of(t);
    recorded_->made.push_back(std::move(made));
  }

  void end_recording() {
    if (recorded_ == nullptr) return;
    GraphWork work{name_, {}, {}, nullptr};
    for (std::size_t i = 0; i < operands_.size(); ++i)
      (operands_[i].written ? work.writes : work.reads).push_back(recorded_->operands[i]);
    for (const auto& each : recorded_->made) work.writes.push_back(each.place);
    work.run = [call = recorded_] { call->run(); };
    recording_->add(std::move(work));
  }

  // Memory that an engine thread allocates before it is known for which operation has no stream
  // yet.
  std::optional<std::size_t> stream_of_result() const {
    if (is_allocation() && is_engine_thread()) return std::nullopt;
    return stream_;
  }

  const Block* written_operand() const {
    for (const Operand& each : operands_)
      if (each.original.storage().nbytes() > 0 && block_of(each.original)->history.write.time > 0)
        return block_of(each.original);
    return nullptr;
  }

  // Such an operator touches no memory.
  bool is_view() const {
    for (const auto& result : op_.schema().returns())
      if (const auto* info = result.alias_info(); info != nullptr && !info->isWrite()) return true;
    return false;
  }

  void replace_arguments() {
    const auto& arguments = op_.schema().arguments();
    const std::size_t begin = stack_->size() - arguments.size();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      c10::IValue& value = (*stack_)[begin + i];
      const auto* info = arguments[i].alias_info();
      const bool written = info != nullptr && info->isWrite();
      if (value.isTensor()) {
        value = replaced(value.toTensor(), written);
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : value.toTensorVector()) list.push_back(replaced(t, written));
        value = list;
      } else if (value.isOptionalTensorList()) {
        c10::List<c10::optional<at::Tensor>> list;
        for (const auto& t : value.toOptionalTensorVector())
          list.push_back(t ? c10::optional<at::Tensor>(replaced(*t, written)) : t);
        value = list;
      } else if (value.isDevice()) {
        const at::Device asked = value.toDevice();
        if (asked.type() == at::kXPU && asked.has_index()) device_ = asked.index();
        value = at::Device(at::kCPU);
      }
    }
  }

  at::Tensor replaced(const at::Tensor& t, bool written) {
    if (!t.defined()) return t;
    if (!on_device(t)) {
      host_operands_.push_back(t);
      return t;
    }
    if (device_ >= 0 && device_ != t.device().index() && !operands_.empty())
      order().violation("'" + name_ + "' has operands on two devices");
    device_ = t.device().index();
    operands_.push_back({t, alias_on_host(t), written});
    return operands_.back().alias;
  }

  // As CUDA's kernels, which take numbers, and indices, from the host.
  void refuse_host_operands() const {
    if (operands_.empty() || name_.rfind("aten::index", 0) == 0) return;
    for (const at::Tensor& t : host_operands_)
      TORCH_CHECK(t.dim() == 0, name_, ": an operand is on the host, others are on a device");
  }

  std::vector<Access> histories(bool written) const {
    std::vector<Access> found;
    for (const Operand& each : operands_)
      if (each.written == written && each.original.storage().nbytes() > 0)
        found.push_back(access_to(each.original));
    return found;
  }

  // An output that had another size has new memory.
  void adopt_new_sizes() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      Operand& each = operands_[i];
      if (!each.written || each.alias.sizes() == each.original.sizes()) continue;
      const at::Tensor fresh = moved(each.alias, RecordedCall::Made::from_operand(i));
      auto* const impl = each.original.unsafeGetTensorImpl();
      impl->set_storage_keep_dtype(fresh.storage());
      impl->set_sizes_and_strides(fresh.sizes(), fresh.strides());
      impl->set_storage_offset(0);
    }
  }

  // What the CPU computed, in memory of the device.
  at::Tensor moved(const at::Tensor& result, RecordedCall::Made made) {
    std::size_t elements = result.numel() == 0 ? 0 : 1;
    for (std::int64_t d = 0; d < result.dim() && elements > 0; ++d)
      elements += static_cast<std::size_t>((result.size(d) - 1) * result.stride(d));
    const at::Tensor t =
        tensor_on(storage_on(elements * result.element_size(), device_, stream_of_result()),
                  c10::DispatchKey::XPU, result.sizes(), result.strides(), 0, result.dtype());
    if (is_allocation() || t.numel() == 0) return t;
    alias_on_host(t).copy_(result);
    order().run(name_, stream_, {}, {&block_of(t)->history});
    record_made(std::move(made), t);
    return t;
  }

  at::Tensor placed(const at::Tensor& result, RecordedCall::Made made) {
    if (!result.defined()) return result;
    for (const Operand& each : operands_) {
      if (each.alias.is_same(result)) return each.original;
      if (!each.alias.is_alias_of(result)) continue;
      return tensor_on(c10::Storage(each.original.storage()), c10::DispatchKey::XPU, result.sizes(),
                       result.strides(), result.storage_offset(), result.dtype());
    }
    for (const at::Tensor& t : host_operands_)
      if (t.is_same(result)) return result;
    return moved(result, std::move(made));
  }

  void replace_results() {
    const std::size_t results = op_.schema().returns().size();
    bool reaches_host = false;
    const std::size_t first = stack_->size() - results;
    for (std::size_t i = first; i < stack_->size(); ++i) {
      c10::IValue& value = (*stack_)[i];
      if (value.isTensor()) {
        value = placed(value.toTensor(), RecordedCall::Made::from_result(i - first));
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : value.toTensorVector())
          list.push_back(placed(t, RecordedCall::Made::from_result(i - first, list.size())));
        value = list;
      } else {
        reaches_host = true;
      }
    }
    if (!reaches_host || operands_.empty()) return;
    synchronize(stream_);  // the host reads a number
    order().count({0, sizeof(double), 0});
  }

  const c10::OperatorHandle& op_;
  Stack* const stack_;
  std::string name_;
  int device_ = -1;
  std::size_t stream_ = 0;
  std::vector<Operand> operands_;
  std::vector<at::Tensor> host_operands_;
  // Of a call in a capture; null: in none.
  Recording* recording_ = nullptr;
  std::shared_ptr<RecordedCall> recorded_;
};

void run_on_host(const c10::OperatorHandle& op, Stack* stack) { Call(op, stack).run(); }

// A copy within a device, or between two: in the stream of the source's device, and both current
// streams wait for each other, as LibTorch does on CUDA.
void copy_on_devices(const at::Tensor& to, const at::Tensor& from) {
  const int source = from.device().index(), target = to.device().index();
  const std::size_t here = stream_of_operation(source, block_of(from));
  const std::size_t there = stream_of_operation(target, block_of(from));
  order().wait(here, order().now(there), order().time_of(there));
  Recording* const capture = recording_in(here);
  if (capture != nullptr) {
    capture->use(Place::of(from), false);
    capture->use(Place::of(to), true);
    capture->add(
        {"aten::copy_",
         {Place::of(from)},
         {Place::of(to)},
         [to = Place::of(to), from = Place::of(from)] { to.alias().copy_(from.alias()); }});
  }
  order().run("aten::copy_", here, {&block_of(from)->history}, {&block_of(to)->history});
  order().wait(there, order().now(here), order().time_of(here));
  alias_on_host(to).copy_(alias_on_host(from));
  if (source != target) order().count({0, 0, from.nbytes()});
}

void copy_up(const at::Tensor& to, const at::Tensor& from) {
  const std::size_t stream = stream_of_operation(to.device().index(), nullptr);
  if (Recording* const capture = recording_in(stream)) capture->refuse("a copy from the host");
  order().run("aten::copy_ (to the device)", stream, {}, {&block_of(to)->history});
  alias_on_host(to).copy_(from);
  synchronize(stream);
  order().count({from.nbytes(), 0, 0});
}

void copy_down(const at::Tensor& to, const at::Tensor& from) {
  const std::size_t stream = stream_of_operation(from.device().index(), block_of(from));
  if (Recording* const capture = recording_in(stream)) capture->refuse("a copy to the host");
  order().run("aten::copy_ (to the host)", stream, {&block_of(from)->history}, {});
  synchronize(stream);
  at::Tensor(to).copy_(alias_on_host(from));
  order().count({0, from.nbytes(), 0});
}

at::Tensor& copy_tensor(at::Tensor& to, const at::Tensor& from, bool /*non_blocking*/) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor source = from.sizes() == to.sizes() ? from : from.expand(to.sizes());
  if (to.numel() == 0) return to;
  if (on_device(to) && on_device(source))
    copy_on_devices(to, source);
  else
    on_device(to) ? copy_up(to, source) : copy_down(to, source);
  return to;
}

TORCH_LIBRARY_IMPL(_, XPU, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, XPU, library) { library.impl("copy_", copy_tensor); }

// The project's kernels for devices, which gpu/torch_cuda has for CUDA: the CPU's loops here.
TORCH_LIBRARY_IMPL(grapevine, XPU, library) {
  for (const char* name : {"sgd_step", "push_sum_step", "push_sum_fold", "meet", "gem_proxy",
                           "gem_rescale", "top_k", "scatter_add", "int8_pack", "int8_fold"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

}  // namespace

at::Tensor peek(const at::Tensor& t) {
  if (!on_device(t)) return t.clone();
  const at::AutoDispatchBelowADInplaceOrView below;
  return alias_on_host(t).clone();
}

}  // namespace grapevine::fake
