// The count of the host's bytes itself.
#include "tests/gpu/fake_device/host_traffic.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "algorithms/kernels/fused_kernels.hpp"
#include "algorithms/kernels/kernels.hpp"
#include "tests/gpu/fake_device/fake_device.hpp"

namespace grapevine {
namespace host_traffic_test {

// In vectors that an operation reads and writes.
struct Passes {
  std::string name;
  std::function<void()> work;
  std::uint64_t read = 0;
  std::uint64_t written = 0;
};

TEST(HostTraffic, CountsWhatOperatorsReadAndWrite) {
  constexpr std::int64_t kSize = 5000;
  at::Tensor x = at::ones({kSize}), y = at::ones({kSize}), out = at::ones({kSize});
  at::Tensor v = at::ones({kSize}), z = at::ones({kSize});
  at::Tensor on_device = at::ones({kSize}).to(fake::device(0));
  kernels::SgdStep step;
  step.lr = 0.1;
  step.momentum = 0.9;
  const std::vector<Passes> all = {
      {"copy", [&] { x.copy_(y); }, 1, 1},
      {"clone", [&] { static_cast<void>(x.clone()); }, 1, 1},
      {"new result", [&] { static_cast<void>(x + y); }, 2, 1},
      {"in place", [&] { x.add_(y); }, 2, 1},
      {"by a number", [&] { x.mul_(0.5); }, 1, 1},
      {"into an output", [&] { at::add_out(out, x, y); }, 2, 1},
      {"fill", [&] { x.fill_(3); }, 0, 1},
      {"views",
       [&] {
         static_cast<void>(x.view({5, 1000}).t().narrow(0, 1, 7));
       },
       0, 0},
      {"allocation", [&] { static_cast<void>(at::empty_like(x)); }, 0, 0},
      {"share", [&] { kernels::scale_into(out, x, 0.5); }, 1, 1},
      {"step", [&] { kernels::sgd_step_into(out, x, v, y, step); }, 3, 2},
      {"fold", [&] { kernels::push_sum_fold_into(out, z, x, y, 0.5, 0.7); }, 2, 2},
      {"step of a round", [&] { kernels::push_sum_step_into(out, z, x, y, v, y, step, 0.7); }, 4,
       3},
      {"device", [&] { on_device.mul_(2).add_(1); }, 0, 0},
      {"over the link", [&] { static_cast<void>(on_device.cpu()); }, 0, 0},
  };
  constexpr std::uint64_t kBytes = kSize * sizeof(float), kNumbers = 64;
  for (const Passes& each : all) {
    SCOPED_TRACE(each.name);
    const fake::HostTraffic traffic;
    each.work();
    const auto [read, written] = traffic.bytes();
    EXPECT_GE(read, each.read * kBytes);
    EXPECT_LE(read, each.read * kBytes + kNumbers) << "numbers are operands, too";
    EXPECT_GE(written, each.written * kBytes);
    EXPECT_LE(written, each.written * kBytes + kNumbers);
  }
}

}  // namespace host_traffic_test
}  // namespace grapevine
