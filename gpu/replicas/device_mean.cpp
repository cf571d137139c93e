#include "gpu/replicas/device_mean.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "gpu/timing/work_span.hpp"
#include "messages/check.hpp"

namespace grapevine {

FrozenTensor mean_on_device(DeviceRuntime& lead, std::vector<FrozenTensor> values) {
  GRAPEVINE_CHECK(!values.empty() && values.front().device() == lead.device(),
                  "a mean of vectors on another device than ", lead.device());
  const auto scope = lead.enter(Stream::compute);
  const WorkSpan work(lead, Stream::compute);
  const at::NoGradGuard no_grad;
  at::Tensor mean = std::move(values.front()).thaw();
  at::Tensor copied;  // from another device; read before the next one overwrites it, in one stream
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i].device() == lead.device()) {
      mean.add_(values[i].read());
      continue;
    }
    if (!copied.defined()) copied = at::empty(mean.sizes(), mean.options());
    lead.copy(Stream::compute, copied, values[i].read_on(lead.device()));
    mean.add_(copied);
    values[i] = {};  // its device may use the memory again, behind the copy
  }
  mean.mul_(1.0 / static_cast<double>(values.size()));
  return FrozenTensor::freeze(std::move(mean));
}

}  // namespace grapevine
