// Kernels of steps.hpp and server_steps.hpp against their rules, element by element on the CPU, and
// against double precision.
#include "gpu/cuda/steps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gpu/cuda/server_steps.hpp"
#include "tests/gpu/cuda/device/device.hpp"

namespace grapevine::cuda {
namespace {

class Steps : public OnDevice {};

// Each size with all arrays aligned, and with arrays that are not.
template <class Body>
void for_each_layout(const Body& body) {
  for (const std::int64_t n : sizes())
    for (const std::int64_t offset : {0, 1, 3}) {
      SCOPED_TRACE(testing::Message() << n << " elements, " << offset << " from alignment");
      body(n, offset);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST_F(Steps, DebiasGivesTheRoundedQuotientAlsoInPlace) {
  for_each_layout([&](std::int64_t n, std::int64_t offset) {
    const auto a = normal(n, 1);
    DeviceArray<float> da(a, offset), z(n);
    require(debias(z.data(), da.data(), 0.3, n, stream_));
    auto expected = a;
    for (float& v : expected) v /= 0.3F;
    expect_same_bits(z.read(stream_), expected);
    expect_same_bits(da.read(stream_), a);
    require(debias(da.data(), da.data(), 0.3, n, stream_));
    expect_same_bits(da.read(stream_), expected);
  });
}

TEST_F(Steps, FoldScalesAndDebiasesAlsoInPlace) {
  for_each_layout([&](std::int64_t n, std::int64_t offset) {
    const auto x = normal(n, 1), share = normal(n, 2);
    DeviceArray<float> dx(x, offset), ds(share), out(n), z(n);
    require(fold_share(out.data(), z.data(), dx.data(), ds.data(), 1.0 / 3, 0.7, n, stream_));
    auto expected = x, e_z = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected[i] = (x[i] + share[i]) * static_cast<float>(1.0 / 3);
      e_z[i] = expected[i] / 0.7F;
    }
    expect_same_bits(out.read(stream_), expected);
    expect_same_bits(z.read(stream_), e_z);
    require(fold_share(dx.data(), nullptr, dx.data(), ds.data(), 1.0 / 3, 0.7, n, stream_));
    expect_same_bits(dx.read(stream_), expected);
  });
}

TEST_F(Steps, MeetMovesHalfwayAlsoInPlace) {
  for_each_layout([&](std::int64_t n, std::int64_t offset) {
    const auto x = normal(n, 1), other = normal(n, 2);
    DeviceArray<float> dx(x), d_other(other, offset), half(n), out(n);
    require(meet_into(out.data(), half.data(), dx.data(), d_other.data(), n, stream_));
    auto moved = x, expected = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      moved[i] = (other[i] - x[i]) / 2;
      expected[i] = x[i] + moved[i];
    }
    expect_same_bits(half.read(stream_), moved);
    expect_same_bits(out.read(stream_), expected);
    require(meet_into(dx.data(), half.data(), dx.data(), d_other.data(), n, stream_));
    expect_same_bits(dx.read(stream_), expected);
  });
}

// All variants of the fused step, against the formula of algorithms/kernels/kernels.hpp in double
// precision and against the rule bit for bit.
struct Variant {
  bool momentum, nesterov, share, debias;
};

void check_step(const Variant& variant, std::int64_t n, std::int64_t offset, cudaStream_t stream) {
  StepFactors f;
  f.lr = 0.1F, f.momentum = variant.momentum ? 0.9F : 0, f.weight_decay = 1e-3F, f.scale = 0.25F;
  f.nesterov = variant.nesterov;
  const auto x = normal(n, 1), gradient = normal(n, 2), v = normal(n, 3), share = normal(n, 4);
  DeviceArray<float> dx(x, offset), dg(gradient), dv(v), ds(share), out(n), z(n);
  StepArrays arrays;
  arrays.out = out.data(), arrays.x = dx.data(), arrays.gradient = dg.data();
  arrays.velocity = variant.momentum ? dv.data() : nullptr;
  arrays.share = variant.share ? ds.data() : nullptr;
  arrays.z = variant.debias ? z.data() : nullptr;
  arrays.weight = 0.7;
  require(sgd_step(arrays, f, n, stream));

  auto e_out = x, e_v = v, e_z = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float from = variant.share ? x[i] + share[i] : x[i];
    const double g = gradient[i] + double{f.weight_decay} * from;
    const double velocity = f.momentum * double{v[i]} + g;
    const double u = !variant.momentum  ? g
                     : variant.nesterov ? g + f.momentum * velocity
                                        : velocity;
    const double precise = (from - f.lr * u) * f.scale;
    if (!variant.momentum)
      e_out[i] = stepped<false, false>(from, gradient[i], e_v[i], f);
    else if (variant.nesterov)
      e_out[i] = stepped<true, true>(from, gradient[i], e_v[i], f);
    else
      e_out[i] = stepped<true, false>(from, gradient[i], e_v[i], f);
    e_z[i] = e_out[i] / 0.7F;
    ASSERT_NEAR(e_out[i], precise, 1e-6 * (1 + std::abs(precise)));
  }
  expect_same_bits(out.read(stream), e_out);
  expect_same_bits(dv.read(stream), e_v);
  if (variant.debias) expect_same_bits(z.read(stream), e_z);
  dv.read(stream), dg.read(stream), ds.read(stream);  // their guards

  DeviceArray<float> again(v);
  arrays.velocity = variant.momentum ? again.data() : nullptr;
  arrays.out = dx.data();
  require(sgd_step(arrays, f, n, stream));
  expect_same_bits(dx.read(stream), e_out);
}

TEST_F(Steps, TheFusedStepIsTheRule) {
  const Variant variants[] = {{false, false, false, false}, {true, false, false, false},
                              {true, true, false, false},   {true, true, true, false},
                              {true, false, true, true},    {true, true, true, true},
                              {false, false, true, true},   {false, false, false, true}};
  for (const Variant& variant : variants)
    for_each_layout([&](std::int64_t n, std::int64_t offset) {
      SCOPED_TRACE(testing::Message()
                   << "momentum " << variant.momentum << ", nesterov " << variant.nesterov
                   << ", share " << variant.share << ", debias " << variant.debias);
      check_step(variant, n, offset, stream_);
    });
}

TEST_F(Steps, ExtremesStayWhatTheCpuMakesOfThem) {
  const float tiny = 1e-45F, large = 3.4e38F;
  const std::vector<float> x = {0.0F, -0.0F, tiny, -tiny, large, -large, 1.0F};
  const std::vector<float> y = {-0.0F, -0.0F, tiny, tiny, large, large, -1.0F};
  const auto n = static_cast<std::int64_t>(x.size());
  DeviceArray<float> dx(x), dy(y), half(n), out(n), halved(n);
  require(meet_into(out.data(), half.data(), dx.data(), dy.data(), n, stream_));
  require(debias(halved.data(), dx.data(), 2, n, stream_));
  auto e_out = x, e_half = x, e_halved = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    e_half[i] = halfway(x[i], y[i]);
    e_out[i] = x[i] + e_half[i];
    e_halved[i] = x[i] / 2;
  }
  expect_same_bits(out.read(stream_), e_out);
  expect_same_bits(half.read(stream_), e_half);
  expect_same_bits(halved.read(stream_), e_halved);  // subnormals are not flushed
}

double norm_of(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += double{v} * v;
  return std::sqrt(sum);
}

TEST_F(Steps, ClipScalesToTheNormAndSaysWhatItWas) {
  for_each_layout([&](std::int64_t n, std::int64_t offset) {
    const auto x = normal(n, 5);
    const double before = norm_of(x);
    for (const double c : {before / 3 + 1e-3, before * 2 + 1}) {
      DeviceArray<float> dx(x, offset);
      DeviceArray<double> norm(1);
      DeviceArray<unsigned char> workspace(static_cast<std::int64_t>(clip_workspace_bytes(n)));
      require(clip(dx.data(), c, norm.data(), workspace.data(), n, stream_));
      const double said = norm.read(stream_)[0];
      EXPECT_NEAR(said, before, 1e-12 * before);
      workspace.read(stream_);
      auto expected = x;
      if (said > c)
        for (float& v : expected) v *= static_cast<float>(c / said);
      expect_same_bits(dx.read(stream_), expected);
    }
  });
}

TEST_F(Steps, SumsGoRoundTheirLoops) {
  const std::int64_t n = kManyStretches;
  const auto x = normal(n, 6);
  DeviceArray<float> dx(x);
  DeviceArray<double> norm(1);
  DeviceArray<unsigned char> workspace(static_cast<std::int64_t>(clip_workspace_bytes(n)));
  require(clip(dx.data(), 1e30, norm.data(), workspace.data(), n, stream_));
  EXPECT_NEAR(norm.read(stream_)[0], norm_of(x), 1e-12 * norm_of(x));
  workspace.read(stream_);
}

TEST_F(Steps, BadArgumentsAreRefusedBeforeAnythingRuns) {
  DeviceArray<float> x(4);
  EXPECT_FALSE(debias(x.data(), x.data(), 0, 4, stream_).ok());
  EXPECT_FALSE(debias(x.data(), x.data(), 1, -1, stream_).ok());
  StepArrays arrays;
  arrays.out = x.data(), arrays.x = x.data(), arrays.gradient = x.data();
  StepFactors momentum;
  momentum.momentum = 0.9F;
  const auto refused = sgd_step(arrays, momentum, 4, stream_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::bad_input);
}

TEST_F(Steps, GemRescales) {
  for_each_layout([&](std::int64_t n, std::int64_t offset) {
    auto delta = normal(n, 1);
    const auto m = normal(n, 2), theta = normal(n, 3), s = normal(n, 4);
    if (n > 2) delta[2] = 0;  // epsilon stands beside |delta|
    DeviceArray<float> dd(delta, offset), dm(m), dt(theta), ds(s), u(n);
    require(match_energy(u.data(), dd.data(), dm.data(), dt.data(), ds.data(), 2, n, stream_));
    auto expected = delta;
    for (std::size_t i = 0; i < delta.size(); ++i)
      expected[i] = matched(delta[i], m[i], theta[i], s[i], 2);
    expect_same_bits(u.read(stream_), expected);
  });
}

TEST_F(Steps, GemsProxyIsMomentum) {
  for_each_layout([&](std::int64_t n, std::int64_t offset) {
    const auto gradient = normal(n, 1), m = normal(n, 2), s = normal(n, 3);
    DeviceArray<float> dg(gradient, offset), dm(m), ds(s);
    require(advance_proxy(dg.data(), dm.data(), ds.data(), 0.1F, 0.9F, 1e-3F, n, stream_));
    auto e_delta = gradient, e_m = m;
    for (std::size_t i = 0; i < m.size(); ++i) {
      e_delta[i] = proxy_delta(gradient[i], s[i], 0.1F, 1e-3F);
      e_m[i] = 0.9F * m[i] + e_delta[i];
    }
    expect_same_bits(dg.read(stream_), e_delta);
    expect_same_bits(dm.read(stream_), e_m);
  });
}

}  // namespace
}  // namespace grapevine::cuda
