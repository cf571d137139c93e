#include "algorithms/roles/server/pulled_slices.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "messages/check.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {

void PulledSlices::take_in(std::int32_t server, Version version, FrozenTensor slice) {
  slices_[static_cast<std::size_t>(server)] = std::move(slice);
  next_[static_cast<std::size_t>(server)] = version;
}

bool PulledSlices::complete() const {
  return std::all_of(slices_.begin(), slices_.end(),
                     [](const FrozenTensor& slice) { return slice.defined(); });
}

FrozenTensor PulledSlices::take(const FrozenTensor& before) {
  versions_ = next_;
  if (slices_.size() == 1) return std::exchange(slices_.front(), FrozenTensor());
  at::Tensor whole = empty_successor(before, before.sizes());
  std::int64_t begin = 0;
  for (FrozenTensor& slice : slices_) {
    whole.narrow(0, begin, slice.numel()).copy_(slice.read());
    begin += slice.numel();
    slice = FrozenTensor();
  }
  GRAPEVINE_CHECK(begin == whole.numel(), "the slices of all servers have ", begin, " values, not ",
                  whole.numel());
  return FrozenTensor::freeze(std::move(whole));
}

void PulledSlices::fields(Archive& a,
                          const std::function<std::int64_t(std::int32_t server)>& size_of) {
  version_fields(a);
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const std::string server = std::to_string(i);
    a.count("next_version." + server, next_[i]);
    a.vector("pulled." + server, slices_[i], size_of(static_cast<std::int32_t>(i)));
  }
}

void PulledSlices::version_fields(Archive& a) {
  for (std::size_t i = 0; i < versions_.size(); ++i)
    a.count("version." + std::to_string(i), versions_[i]);
}

}  // namespace grapevine
