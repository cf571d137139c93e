// Compressors against their definitions; error feedback against the papers' equations.
#include "algorithms/compressors/compressor.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "algorithms/compressors/error_feedback.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "messages/codec.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace compressor_test {

using testing::HasSubstr;

const std::vector<std::int64_t> kSizes = {1, 7, 1024, 1025, 10'000};

CompressionSettings settings_of(const std::string& name, double density = 0.1,
                                bool error_feedback = true) {
  CompressionSettings settings;
  settings.name = name;
  settings.density = *DensitySchedule::parse(std::to_string(density), "none");
  settings.error_feedback = error_feedback;
  return settings;
}

std::vector<CompressionSettings> all_compressors() {
  std::vector<CompressionSettings> all;
  for (const std::string& name : compressor_names())
    for (const bool feedback : {true, false}) all.push_back(settings_of(name, 0.1, feedback));
  all.push_back(settings_of("top-k"));
  all.back().sampled = true;
  for (const char* name : {"top-k", "random-k"}) {
    all.push_back(settings_of(name));
    all.back().value_type = ValueType::f16;
  }
  return all;
}

std::string describe(const CompressionSettings& settings, std::int64_t d) {
  return settings.name + (settings.error_feedback ? "" : " without feedback") +
         (settings.sampled ? " sampled" : "") +
         (settings.value_type == ValueType::f16 ? " f16" : "") + ", d " + std::to_string(d);
}

at::Tensor normal(std::uint64_t seed, std::int64_t d) {
  return at::randn({d}, at::make_generator<at::CPUGeneratorImpl>(seed), at::TensorOptions());
}

at::Tensor unpacked(const Compressor& compressor, const Packed& packed, std::int64_t d) {
  at::Tensor x = at::zeros({d});
  EXPECT_TRUE(compressor.fold(x, packed, 1).ok());
  return x;
}

std::uint64_t payload_bytes(const Packed& packed) {
  return packed.indices.nbytes() + packed.values.nbytes() + packed.scales.nbytes();
}

TEST(Compressor, SendsTheBytesThatItSays) {
  for (const CompressionSettings& settings : all_compressors())
    for (const std::int64_t d : kSizes) {
      SCOPED_TRACE(describe(settings, d));
      Rng rng(1);
      const auto compressor = make_compressor(settings);
      const Packed packed = compressor->pack(normal(1, d), 0, rng);
      if (settings.sampled) {
        EXPECT_LE(payload_bytes(packed), compressor->bytes(d, 0));
      } else {
        EXPECT_EQ(payload_bytes(packed), compressor->bytes(d, 0));
      }
    }
}

// What travels is the packed vector and a header of fixed size.
TEST(Compressor, PackedVectorsTravel) {
  for (const CompressionSettings& settings : all_compressors())
    for (const std::int64_t d : kSizes) {
      SCOPED_TRACE(describe(settings, d));
      Rng rng(2);
      const auto compressor = make_compressor(settings);
      const at::Tensor x = normal(2, d);
      Envelope sent;
      sent.payload = PackedChunk{3, 1, 0, compressor->pack(x, 0, rng)};
      const auto bytes = encode(sent);
      const auto received = decode(bytes.data(), bytes.size(), {});
      ASSERT_TRUE(received.ok()) << received.error().message;
      EXPECT_TRUE(at::equal(unpacked(*compressor, std::get<PackedChunk>(received->payload).data, d),
                            unpacked(*compressor, std::get<PackedChunk>(sent.payload).data, d)));
    }
}

// |x - C(x)|^2 <= (1 - delta) |x|^2 with delta > 0: what error feedback and CHOCO-SGD need. Those
// without feedback may be longer than x instead; they are unbiased, or rounded to the nearest.
TEST(Compressor, IsAContractionWhereThereIsErrorFeedback) {
  for (const CompressionSettings& settings : all_compressors()) {
    if (!settings.error_feedback) continue;
    for (const std::int64_t d : kSizes)
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        SCOPED_TRACE(describe(settings, d) + ", seed " + std::to_string(seed));
        Rng rng(seed);
        const at::Tensor x = normal(seed, d);
        const auto compressor = make_compressor(settings);
        const at::Tensor left = x - unpacked(*compressor, compressor->pack(x, 0, rng), d);
        const double share = (left.square().sum() / x.square().sum()).item<double>();
        EXPECT_LT(share, settings.name == "random-k" && d > 1 ? 1.0 : 0.95);
        if (settings.name == "top-k" && !settings.sampled) {
          const auto k = static_cast<double>(settings.density.entries(0, d));
          EXPECT_LE(share, 1 - k / static_cast<double>(d) + 1e-6);
        }
        if (settings.name == "fp16" || settings.name == "none") {
          EXPECT_LT(share, 1e-6);
        }
        if (settings.name == "bf16" || settings.name == "int8") {
          EXPECT_LT(share, 1e-3);
        }
      }
  }
}

// The mean of many, against the standard deviation of a mean.
TEST(Compressor, IsUnbiasedWhereItSaysSo) {
  constexpr std::int64_t kD = 50;
  constexpr int kTrials = 4000;
  const at::Tensor x = normal(3, kD);
  for (const CompressionSettings& settings : all_compressors()) {
    SCOPED_TRACE(describe(settings, kD));
    const auto compressor = make_compressor(settings);
    Rng rng(4);
    at::Tensor sum = at::zeros({kD}, at::kDouble), squares = at::zeros({kD}, at::kDouble);
    for (int i = 0; i < kTrials; ++i) {
      const at::Tensor y = unpacked(*compressor, compressor->pack(x, 0, rng), kD).to(at::kDouble);
      sum += y;
      squares += y.square();
    }
    const at::Tensor mean = sum / kTrials;
    const at::Tensor deviation =
        ((squares / kTrials - mean.square()).clamp_min(0) / kTrials).sqrt();
    const at::Tensor bias = (mean - x.to(at::kDouble)).abs();
    // Five deviations, and what rounding to float may cost.
    const bool seen_unbiased = bias.le(5 * deviation + 1e-5).all().item<bool>();
    EXPECT_EQ(seen_unbiased, compressor->unbiased()) << bias << deviation;
  }
}

TEST(Compressor, SameSeedSameBits) {
  for (const CompressionSettings& settings : all_compressors()) {
    SCOPED_TRACE(describe(settings, 0));
    const auto compressor = make_compressor(settings);
    const at::Tensor x = normal(5, 3000);
    Rng a(7), b(7);
    EXPECT_TRUE(at::equal(unpacked(*compressor, compressor->pack(x, 0, a), 3000),
                          unpacked(*compressor, compressor->pack(x, 0, b), 3000)));
    EXPECT_EQ(a(), b());
  }
}

// A run must end with a NaN that is one, not go on with what compression made of it.
TEST(Compressor, ANanOrInfinityIsNotHidden) {
  for (const CompressionSettings& settings : all_compressors()) {
    if (settings.name == "random-k") continue;  // sees one entry of each stretch
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      SCOPED_TRACE(describe(settings, 0) + ", " + std::to_string(bad));
      Rng rng(1);
      at::Tensor x = normal(6, 2000);
      x[1234] = bad;
      const auto compressor = make_compressor(settings);
      EXPECT_FALSE(
          unpacked(*compressor, compressor->pack(x, 0, rng), 2000).isfinite().all().item<bool>());
    }
  }
}

TEST(Compressor, HalfKeepsLargeNumbersFinite) {
  Rng rng(1);
  const auto half = make_compressor(settings_of("fp16"));
  const at::Tensor x = at::tensor({1e6F, -1e6F, 65504.0F, 1.0F, 65519.0F});
  EXPECT_TRUE(at::equal(unpacked(*half, half->pack(x, 0, rng), 5),
                        at::tensor({65504.0F, -65504.0F, 65504.0F, 1.0F, 65504.0F})));
}

TEST(Compressor, SignIsTheMeanMagnitude) {
  Rng rng(1);
  const auto sign = make_compressor(settings_of("sign"));
  at::Tensor x = at::cat(
      {at::tensor({-1.0F, 3.0F, 0.0F, -4.0F}), at::ones({4092}), at::tensor({-8.0F, -4.0F})});
  const at::Tensor y = unpacked(*sign, sign->pack(x, 0, rng), x.numel());
  const float first = (8.0F + 4092.0F) / 4096.0F;
  EXPECT_TRUE(at::allclose(y.slice(0, 0, 4), at::tensor({-first, first, first, -first})));
  EXPECT_TRUE(at::equal(y.slice(0, 4096), at::tensor({-6.0F, -6.0F})));
}

TEST(Compressor, RandomKTakesEveryEntryEquallyOften) {
  constexpr std::int64_t kD = 23, kK = 4;
  const auto random = make_compressor(settings_of("random-k", 4.0 / 23 + 1e-6));
  Rng rng(8);
  at::Tensor count = at::zeros({kD});
  for (int i = 0; i < 20'000; ++i) {
    const Packed packed = random->pack(at::ones({kD}), 0, rng);
    ASSERT_EQ(packed.values.numel(), kK);
    ASSERT_TRUE(random->fold(count, packed, 1).ok());
  }
  // Stretches are of 5 or 6 entries.
  EXPECT_GT(count.min().item<float>(), 20'000.0F / 6 * 0.9F);
  EXPECT_LT(count.max().item<float>(), 20'000.0F / 5 * 1.1F);
}

// Any other compressor's vector, one of another length, or garbage.
TEST(Compressor, RefusesWhatItDidNotPack) {
  constexpr std::int64_t kD = 100;
  for (const CompressionSettings& mine : all_compressors()) {
    const auto compressor = make_compressor(mine);
    for (const CompressionSettings& other : all_compressors())
      for (const std::int64_t d : {kD, kD + 9}) {
        SCOPED_TRACE(describe(mine, kD) + " gets " + describe(other, d));
        // Lists are alike: what counts is that their indices fit.
        const bool alike = compressor->sparse() && make_compressor(other)->sparse();
        Rng rng(1);
        const Packed packed = make_compressor(other)->pack(normal(1, d), 0, rng);
        at::Tensor x = at::zeros({kD});
        const auto folded = compressor->fold(x, packed, 1);
        const bool fits = alike ? (*from_packed(packed, d)).indices.back() < kD
                                : mine.name == other.name && !compressor->sparse() && d == kD;
        if (fits) {
          EXPECT_TRUE(folded.ok()) << folded.error().message;
          continue;
        }
        ASSERT_FALSE(folded.ok());
        EXPECT_EQ(folded.error().code, Errc::protocol);
        EXPECT_THAT(folded.error().message, HasSubstr("packed vector refused"));
        EXPECT_EQ(x.count_nonzero().item<std::int64_t>(), 0) << "x was changed";
      }
  }
}

// ---- Error feedback

TEST(ErrorFeedback, WhatIsSentAndWhatIsKeptAreWhatWasGiven) {
  for (const CompressionSettings& settings : all_compressors()) {
    if (!settings.error_feedback) continue;
    constexpr std::int64_t kD = 3000;
    SCOPED_TRACE(describe(settings, kD));
    const auto compressor = make_compressor(settings);
    ErrorFeedback feedback({});
    Rng rng(9);
    at::Tensor given = at::zeros({kD}, at::kDouble), sent = at::zeros({kD}, at::kDouble);
    for (std::uint64_t step = 0; step < 10; ++step) {
      at::Tensor g = normal(20 + step, kD);
      given += g.to(at::kDouble);
      sent += unpacked(*compressor, feedback.pack(g, *compressor, 0, rng), kD).to(at::kDouble);
      EXPECT_TRUE(at::allclose(given, sent + feedback.residual().to(at::kDouble), 0, 1e-4));
    }
  }
}

// Lin et al. 2018, Algorithm 1, in double precision.
TEST(ErrorFeedback, MomentumCorrectionIsThePapersEquation) {
  constexpr std::int64_t kD = 40, kK = 4;
  for (const bool nesterov : {false, true})
    for (const bool masking : {false, true}) {
      SCOPED_TRACE(testing::Message() << "nesterov " << nesterov << ", masking " << masking);
      ErrorFeedbackSettings settings;
      settings.momentum = 0.9;
      settings.nesterov = nesterov;
      settings.masking = masking;
      ErrorFeedback feedback(settings);
      const auto compressor = make_compressor(settings_of("top-k"));
      Rng rng(1);
      at::Tensor u = at::zeros({kD}, at::kDouble), v = at::zeros({kD}, at::kDouble);
      for (std::uint64_t step = 0; step < 12; ++step) {
        at::Tensor g = normal(step, kD);
        const at::Tensor exact = g.to(at::kDouble);
        if (nesterov) {
          u = 0.9 * (u + exact);
          v = v + u + exact;
        } else {
          u = 0.9 * u + exact;
          v = v + u;
        }
        const at::Tensor chosen = std::get<1>(v.abs().topk(kK));
        const at::Tensor update = at::zeros_like(v).scatter(0, chosen, v.gather(0, chosen));
        v = v.scatter(0, chosen, 0);
        if (masking) u = u.scatter(0, chosen, 0);
        const at::Tensor sent =
            unpacked(*compressor, feedback.pack(g, *compressor, 0, rng), kD).to(at::kDouble);
        feedback.restore({});  // all of it is in the result
        ASSERT_TRUE(at::allclose(sent, update, 1e-5, 1e-6)) << "step " << step;
        ASSERT_TRUE(at::allclose(feedback.residual().to(at::kDouble), v, 1e-5, 1e-6));
      }
    }
}

// e' + q = beta e + g, to the last bit where the numbers are whole and beta is a half.
TEST(ErrorFeedback, ADecayingResidualKeepsItsPart) {
  constexpr std::int64_t kD = 60;
  ErrorFeedbackSettings settings;
  settings.decay = 0.5;
  ErrorFeedback feedback(settings);
  const auto compressor = make_compressor(settings_of("top-k"));
  Rng rng(1);
  at::Tensor before = at::zeros({kD});
  for (std::uint64_t step = 0; step < 8; ++step) {
    at::Tensor g = (normal(step, kD) * 64).round() * 256;
    const at::Tensor expected = before * 0.5 + g;
    const at::Tensor sent = unpacked(*compressor, feedback.pack(g, *compressor, 0, rng), kD);
    EXPECT_TRUE(at::equal(feedback.residual() + sent, expected)) << "step " << step;
    before = feedback.residual().clone();
  }
}

TEST(ErrorFeedback, RejectedEntriesComeBackAndASavedOneGoesOn) {
  ErrorFeedbackSettings settings;
  settings.momentum = 0.5;
  const auto compressor = make_compressor(settings_of("top-k"));
  ErrorFeedback straight(settings);
  Rng rng(1);
  at::Tensor g = normal(1, 30);
  straight.pack(g, *compressor, 0, rng);
  SparseVector rejected;
  rejected.add(3, 2.5F);
  const float before = straight.residual()[3].item<float>();
  straight.restore(rejected);
  EXPECT_EQ(straight.residual()[3].item<float>(), before + 2.5F);

  ErrorFeedback loaded(settings);
  ASSERT_TRUE(load_state(loaded, save_state(straight, std::int64_t{0}), 30).ok());
  at::Tensor a = normal(2, 30), b = a.clone();
  EXPECT_TRUE(at::equal(unpacked(*compressor, straight.pack(a, *compressor, 0, rng), 30),
                        unpacked(*compressor, loaded.pack(b, *compressor, 0, rng), 30)));
  EXPECT_TRUE(at::equal(straight.residual(), loaded.residual()));
}

// What is sent and what is kept are what was given, to the last bit, in 16 bits, too: below 2^29.
TEST(ErrorFeedback, RoundingOfValuesGoesIntoTheResidual) {
  constexpr std::int64_t kD = 4000;
  for (const char* name : {"top-k", "random-k"}) {
    SCOPED_TRACE(name);
    CompressionSettings settings = settings_of(name, 0.2);
    settings.value_type = ValueType::f16;
    const auto compressor = make_compressor(settings);
    ErrorFeedback feedback({});
    Rng rng(1);
    const at::Tensor given = normal(1, kD) * at::randint(1, 3000, {kD});
    at::Tensor g = given.clone();
    const Packed packed = feedback.pack(g, *compressor, 0, rng);
    EXPECT_EQ(payload_bytes(packed), 6U * kD / 5);
    const at::Tensor sent = unpacked(*compressor, packed, kD);
    EXPECT_TRUE(at::equal(sent + feedback.residual(), given));
    const at::Tensor rounded = sent.ne(0).logical_and(feedback.residual().ne(0));
    EXPECT_GT(rounded.sum().item<std::int64_t>(), kD / 10) << "nothing was rounded";
    feedback.give_back(packed, *compressor);
    EXPECT_TRUE(at::equal(feedback.residual(), given)) << "what was refused came back";
  }
}

// Values that 16 bits hold as 0 are not sent: no index travels, and masking leaves the momentum of
// what is still to come.
TEST(ErrorFeedback, WhatRoundsToZeroIsNotSent) {
  constexpr std::int64_t kD = 100;
  for (const char* name : {"top-k", "random-k"}) {
    SCOPED_TRACE(name);
    CompressionSettings settings = settings_of(name, 1);
    settings.value_type = ValueType::f16;
    const auto compressor = make_compressor(settings);
    ErrorFeedbackSettings feedback_settings;
    feedback_settings.momentum = 0.5;
    ErrorFeedback feedback(feedback_settings);
    Rng rng(1);
    // Every second entry is far below the smallest number of 16 bits.
    at::Tensor g = at::full({kD}, 1.0F);
    g.slice(0, 0, kD, 2).fill_(-1e-9F);
    const at::Tensor tiny = g.lt(0);
    const Packed first = feedback.pack(g, *compressor, 0, rng);
    EXPECT_EQ(first.indices.numel(), kD / 2);
    EXPECT_TRUE(at::equal(unpacked(*compressor, first, kD).eq(0), tiny));
    feedback.restore({});  // all of it is in the result
    const at::Tensor velocity = *save_state(feedback, std::int64_t{0}).tensor("velocity");
    EXPECT_TRUE(at::equal(velocity, at::where(tiny, at::full({kD}, -1e-9F), at::zeros({kD}))));
    // u = -0.5e-9, e = -1e-9 - 0.5e-9.
    at::Tensor none = at::zeros({kD});
    EXPECT_EQ(feedback.pack(none, *compressor, 0, rng).indices.numel(), 0);
    EXPECT_TRUE(at::allclose(feedback.residual(),
                             at::where(tiny, at::full({kD}, -1.5e-9F), at::zeros({kD})), 1e-5, 0));
  }
}

// ---- By layer

// Each layer keeps its share, at least one, and what it would keep alone.
TEST(PerLayer, EachLayerKeepsItsOwn) {
  const std::vector<std::int64_t> sizes = {1, 700, 3, 0, 40'000, 96};
  std::int64_t d = 0;
  for (const std::int64_t size : sizes) d += size;
  // Sizes so different that a flat selection would only see one layer.
  at::Tensor x = normal(5, d);
  x.narrow(0, 704, 40'000).mul_(1000);
  for (const bool sampled : {false, true}) {
    CompressionSettings settings = settings_of("top-k", 0.01);
    settings.sampled = sampled;
    settings.per_layer = true;
    settings.layers = sizes;
    CompressionSettings alone = settings_of("top-k", 0.01);
    alone.sampled = sampled;
    Rng rng(1);
    const auto by_layer = make_compressor(settings);
    const at::Tensor kept = unpacked(*by_layer, by_layer->pack(x, 0, rng), d);
    std::int64_t begin = 0;
    for (const std::int64_t size : sizes) {
      SCOPED_TRACE("layer of " + std::to_string(size));
      const auto one = make_compressor(alone);
      const at::Tensor layer = x.narrow(0, begin, size).clone();
      const at::Tensor expected =
          size > 0 ? unpacked(*one, one->pack(layer, 0, rng), size) : at::zeros({0});
      EXPECT_TRUE(at::equal(kept.narrow(0, begin, size), expected));
      if (!sampled) {
        EXPECT_EQ(expected.count_nonzero().item<std::int64_t>(),
                  size == 0 ? 0 : std::max<std::int64_t>(1, size / 100));
      }
      begin += size;
    }
    // k of each layer, and half of it more where it is sampled.
    const std::uint64_t entries = sampled ? 1 + 10 + 1 + 600 + 1 : 1 + 7 + 1 + 400 + 1;
    EXPECT_EQ(by_layer->bytes(d, 0), 8 * entries);
  }
}

TEST(PerLayer, OfOneLayerIsFlat) {
  constexpr std::int64_t kD = 5000;
  for (const char* name : {"top-k", "random-k"}) {
    CompressionSettings layered = settings_of(name);
    layered.per_layer = true;
    for (const std::vector<std::int64_t>& layers : {std::vector<std::int64_t>{}, {kD}}) {
      layered.layers = layers;
      Rng a(3), b(3);
      const auto flat = make_compressor(settings_of(name)), one = make_compressor(layered);
      EXPECT_TRUE(at::equal(unpacked(*flat, flat->pack(normal(2, kD), 0, a), kD),
                            unpacked(*one, one->pack(normal(2, kD), 0, b), kD)));
    }
  }
}

TEST(PerLayer, LayersThatAreNotTheVectorAreABrokenInvariant) {
  CompressionSettings settings = settings_of("top-k");
  settings.per_layer = true;
  settings.layers = {10, 20};
  Rng rng(1);
  EXPECT_THROW(make_compressor(settings)->pack(normal(1, 31), 0, rng), InvariantBroken);
}

// ---- Their keys

TEST(DensitySchedule, FollowsItsGrammar) {
  const auto dgc = *DensitySchedule::parse("0.001", "dgc");
  EXPECT_EQ(dgc.at(0), 0.25);
  EXPECT_EQ(dgc.at(0.99), 0.25);
  EXPECT_EQ(dgc.at(1), 0.0625);
  EXPECT_EQ(dgc.at(3.5), 0.004);
  EXPECT_EQ(dgc.at(4), 0.001);
  const auto fast = *DensitySchedule::parse("0.01", "dgc@0.1");
  EXPECT_EQ(fast.at(0.35), 0.01) << "never below the density";
  EXPECT_EQ(fast.at(0.15), 0.0625);
  const auto one = *DensitySchedule::parse("0.001", "0.004");
  EXPECT_EQ(one.entries(0, 1000), 4);
  EXPECT_EQ(one.entries(1, 1000), 1);
  EXPECT_EQ(one.entries(1, 10), 1) << "at least one";
  EXPECT_EQ(one.entries(1, 0), 0);
  EXPECT_EQ(DensitySchedule::parse("0.29", "none")->entries(0, 100), 29);
  for (const char* bad : {"0", "-1", "1.5", "x", "", "nan"})
    EXPECT_THAT(DensitySchedule::parse(bad, "none").error().message, HasSubstr("wiring.density ="));
  for (const char* bad : {"", "0.5,", "2", "dgc@0", "dgc@", "0.1@x", "dcg"})
    EXPECT_THAT(DensitySchedule::parse("0.1", bad).error().message,
                HasSubstr("wiring.density_warmup ="))
        << bad;
}

TEST(CompressionWiring, NamesTheTwoPartsThatDoNotFit) {
  using sim::Keys;
  const auto refusal = sim::refusal_of;
  const std::vector<std::pair<Keys, std::vector<std::string>>> cases = {
      {{{"density", "0.1"}}, {"density = '0.1'", "compress = 'none'"}},
      {{{"compress", "topk"}}, {"wiring.compress 'topk'", "did you mean 'top-k'"}},
      {{{"compress", "int8"}, {"density", "0.1"}}, {"density", "compress = 'int8'"}},
      {{{"compress", "int8"}, {"sparse_reduce", "tree"}},
       {"sparse_reduce = 'tree'", "compress = 'int8'"}},
      {{{"compress", "random-k"}, {"selection", "sampled"}},
       {"selection = 'sampled'", "compress = 'random-k'"}},
      {{{"compress", "int8"}, {"per_layer", "true"}}, {"per_layer = 'true'", "compress = 'int8'"}},
      {{{"compress", "sign"}, {"value_type", "f16"}}, {"value_type = 'f16'", "compress = 'sign'"}},
      {{{"compress", "top-k"}, {"value_type", "fp16"}}, {"wiring.value_type 'fp16'", "'f16'"}},
      {{{"per_layer", "true"}}, {"per_layer = 'true'", "compress = 'none'"}},
      {{{"compress", "top-k"}, {"error_feedback", "false"}, {"momentum_correction", "true"}},
       {"momentum_correction = 'true'", "error_feedback = false"}},
      {{{"compress", "top-k"}, {"momentum_masking", "true"}},
       {"momentum_masking = 'true'", "momentum_correction"}},
      {{{"exchange", "group"}, {"compress", "top-k"}},
       {"compress = 'top-k'", "exchange = 'group'"}},
      {{{"exchange", "group"}, {"compress", "sign"}}, {"compress = 'sign'", "choose fp16"}},
      {{{"exchange", "gossip"}, {"averaging", "biased"}, {"compress", "top-k"}},
       {"compress = 'top-k'", "averaging = 'biased'"}},
      {{{"exchange", "gossip"},
        {"averaging", "symmetric"},
        {"compress", "top-k"},
        {"sparse_reduce", "tree"}},
       {"sparse_reduce = 'tree'", "exchange = 'gossip'"}},
      {{{"compress", "top-k"}, {"consensus_step", "0.5"}},
       {"consensus_step = '0.5'", "exchange = 'aggregate'"}},
      {{{"exchange", "gossip"}, {"clip", "1"}, {"clip_at", "sum"}},
       {"clip_at = 'sum'", "exchange = 'gossip'"}},
      {{{"clip", "0"}}, {"wiring.clip = '0'", "above 0"}},
      {{{"clip_at", "local"}}, {"clip_at = 'local'", "without clip"}}};
  for (const auto& [keys, parts] : cases) {
    const std::string message = refusal(keys);
    for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_EQ(refusal({{"compress", "top-k"}, {"clip", "0.5"}, {"clip_at", "local"}}), "accepted");
  EXPECT_EQ(refusal({{"compress", "random-k"}, {"sparse_reduce", "butterfly"}}), "accepted");
  EXPECT_EQ(refusal({{"exchange", "gossip"},
                     {"averaging", "symmetric"},
                     {"overlap", "true"},
                     {"staleness", "2"},
                     {"compress", "sign"}}),
            "accepted");
}

TEST(CompressionWiring, NumbersOfAJobFileAreReadAsWritten) {
  const auto wiring =
      Wiring::parse_toml("[wiring]\ncompress = 'top-k'\ndensity = 0.01\nclip = 2\n", "job");
  ASSERT_TRUE(wiring.ok()) << wiring.error().message;
  EXPECT_EQ(wiring->keys().at("density"), "0.01");
  const auto again = Wiring::parse_toml(wiring->to_toml(), "again");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->keys(), wiring->keys());
  EXPECT_THAT(wiring->to_toml(), HasSubstr("density = 0.01\n"));
}

// What the command line takes for a number, and TOML does not.
TEST(CompressionWiring, EveryNumberSurvivesAJobFile) {
  for (const char* number : {"0", "7", "007", "00.5", "0.5", "99999999999999999999", "1e3"}) {
    Wiring wiring;
    ASSERT_TRUE(wiring.set("clip", number).ok());
    const auto again = Wiring::parse_toml(wiring.to_toml(), "again");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->keys(), wiring.keys());
  }
}

TEST(CompressionWiring, MomentumCorrectionNeedsMomentum) {
  Wiring wiring;
  ASSERT_TRUE(wiring.set("compress", "top-k").ok());
  ASSERT_TRUE(wiring.set("momentum_correction", "true").ok());
  OptimizerConfig optimizer;
  const auto make = [&] {
    return make_parts(*resolve(wiring), {10, 1}, *LrSchedule::make({}), optimizer, 4);
  };
  EXPECT_THAT(make().error().message, HasSubstr("momentum_correction"));
  optimizer.momentum = 0.9;
  EXPECT_TRUE(make().ok());
  optimizer.name = "adam";
  EXPECT_THAT(make().error().message, HasSubstr("'adam'"));
}

}  // namespace compressor_test
}  // namespace grapevine
