#include "apps/simulate/compute_time.hpp"

#include <cmath>
#include <functional>
#include <optional>
#include <random>

#include "messages/random.hpp"

namespace grapevine {
namespace {

constexpr std::uint64_t kComputeStream = 0x636f6d70757465;  // messages/random.hpp: one purpose each
constexpr double kMostSeconds = 3600;                       // a tail must not stop the run for ever

Error bad_spec(const std::string& spec) {
  return bad_input("--compute '" + spec +
                   "': expected seconds like 0.05 or 50ms, lognormal=MU:SIGMA, "
                   "normal=MEAN:DEVIATION, uniform=A..B or exponential=MEAN, "
                   "of an hour at most");
}

std::optional<double> plain_number_in(const std::string& text) {
  try {
    std::size_t used = 0;
    const double value = std::stod(text, &used);
    if (used == text.size() && std::isfinite(value)) return value;
  } catch (const std::exception&) {
  }
  return std::nullopt;
}

std::optional<double> seconds_in(const std::string& text) {
  if (const auto number = plain_number_in(text)) return *number >= 0 ? number : std::nullopt;
  const auto duration = parse_duration(text);
  if (!duration) return std::nullopt;
  return to_seconds(*duration);
}

using Sample = std::function<double(Rng&)>;  // seconds

ComputeTime drawn(std::uint64_t seed, double mean, Sample sample) {
  const std::uint64_t stream = mix_seed(seed, kComputeStream);
  const auto of = [stream, sample = std::move(sample)](Rank rank, Step step) {
    Rng rng(mix_seed(mix_seed(stream, static_cast<std::uint64_t>(rank)),
                     static_cast<std::uint64_t>(step)));
    return from_seconds(std::min(std::max(0.0, sample(rng)), kMostSeconds));
  };
  return {of, from_seconds(std::min(mean, kMostSeconds))};
}

std::optional<ComputeTime> distribution(const std::string& name, double a, double b,
                                        std::uint64_t seed) {
  // More is refused, as it is where the time is given itself; in a tail it is cut off.
  const bool usual = name == "lognormal" ? a <= std::log(kMostSeconds) : a <= kMostSeconds;
  if (!usual || (name == "uniform" && b > kMostSeconds)) return std::nullopt;
  if (name == "lognormal" && b >= 0)
    return drawn(seed, std::exp(a + b * b / 2), [a, b](Rng& rng) {
      return std::exp(a + b * std::normal_distribution<double>()(rng));
    });
  if (name == "normal" && a > 0 && b >= 0)
    return drawn(seed, a, [a, b](Rng& rng) {
      return std::max(a / 10, a + b * std::normal_distribution<double>()(rng));
    });
  if (name == "uniform" && a >= 0 && b >= a)
    return drawn(seed, (a + b) / 2, [a, b](Rng& rng) {
      return a + (b - a) * static_cast<double>(rng() >> 11) * 0x1p-53;
    });
  return std::nullopt;
}

}  // namespace

Expected<ComputeTime> parse_compute_time(const std::string& spec, std::uint64_t seed) {
  if (const auto seconds = seconds_in(spec)) {
    if (*seconds > kMostSeconds) return bad_spec(spec);
    const Duration always = from_seconds(*seconds);
    return ComputeTime{[always](Rank, Step) { return always; }, always};
  }
  const auto equals = spec.find('=');
  const std::string name = spec.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : spec.substr(equals + 1);
  if (name == "exponential") {
    const auto mean = seconds_in(value);
    if (!mean || *mean > kMostSeconds) return bad_spec(spec);
    return drawn(seed, *mean, [m = *mean](Rng& rng) {
      return -m * std::log1p(-static_cast<double>(rng() >> 11) * 0x1p-53);
    });
  }
  const std::string between = name == "uniform" ? ".." : ":";
  const auto at = value.find(between);
  if (at == std::string::npos) return bad_spec(spec);
  const std::string first = value.substr(0, at), second = value.substr(at + between.size());
  // MU of a lognormal is a logarithm, not a time.
  const auto a = name == "lognormal" ? plain_number_in(first) : seconds_in(first);
  const auto b = seconds_in(second);
  const auto made = a && b ? distribution(name, *a, *b, seed) : std::nullopt;
  if (!made) return bad_spec(spec);
  return *made;
}

}  // namespace grapevine
