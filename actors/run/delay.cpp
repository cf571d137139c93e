#include "actors/run/delay.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <vector>

#include "messages/random.hpp"
#include "messages/text/names.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

constexpr char kUsualPerTimeStep[] = "1ms";

Error bad_term(const std::string& term, const std::string& expected) {
  return bad_input("--delay '" + term + "': expected " + expected);
}

// "A<separator>B" -> (A, B).
std::optional<std::pair<std::string, std::string>> split(const std::string& text,
                                                         const std::string& separator) {
  const auto at = text.find(separator);
  if (at == std::string::npos) return std::nullopt;
  return std::make_pair(text.substr(0, at), text.substr(at + separator.size()));
}

Rng stream(std::uint64_t seed, Rank rank, Step step) {
  return Rng(mix_seed(mix_seed(seed, static_cast<std::uint64_t>(step)),
                      static_cast<std::uint64_t>(rank) + 1));
}

Expected<DelayModel::Term> rank_term(const std::string& term, const std::string& value,
                                     std::int32_t ranks) {
  const auto parts = split(value, ":");
  const auto rank = parts ? finite_number_in(parts->first) : std::nullopt;
  if (!rank || *rank < 0 || *rank >= ranks || *rank != std::floor(*rank))
    return bad_term(term, "rank=R:DUR with R in 0.." + std::to_string(ranks - 1));
  const auto delay = parse_duration(parts->second);
  if (!delay) return bad_term(term, delay.error().message);
  return DelayModel::Term([slow = static_cast<Rank>(*rank), d = *delay](Rank r, Step) {
    return r == slow ? d : Duration::zero();
  });
}

Expected<DelayModel::Term> random_term(const std::string& term, const std::string& value,
                                       std::int32_t ranks, std::uint64_t seed) {
  const auto parts = split(value, ":");
  const auto count = parts ? finite_number_in(parts->first) : std::nullopt;
  if (!count || *count < 1 || *count > ranks || *count != std::floor(*count))
    return bad_term(term, "random=K:DUR with K in 1.." + std::to_string(ranks));
  const auto delay = parse_duration(parts->second);
  if (!delay) return bad_term(term, delay.error().message);
  return DelayModel::Term([k = static_cast<std::size_t>(*count), d = *delay, ranks, seed](Rank r,
                                                                                          Step s) {
    std::vector<Rank> order(static_cast<std::size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    Rng rng = stream(seed, -1, s);
    for (std::size_t i = 0; i < k; ++i) {  // partial Fisher-Yates: the first k are the slow ones
      std::swap(order[i], order[i + rng() % (order.size() - i)]);
      if (order[i] == r) return d;
    }
    return Duration::zero();
  });
}

Expected<DelayModel::Term> rotate_term(const std::string& term, const std::string& value,
                                       std::int32_t ranks) {
  const auto parts = split(value, "..");
  if (!parts) return bad_term(term, "rotate=DUR..DUR");
  const auto low = parse_duration(parts->first), high = parse_duration(parts->second);
  if (!low) return bad_term(term, low.error().message);
  if (!high) return bad_term(term, high.error().message);
  if (*high < *low) return bad_term(term, "rotate=LOW..HIGH with LOW at most HIGH");
  return DelayModel::Term([low = *low, high = *high, ranks](Rank r, Step s) {
    const std::int64_t slot = (r + s) % ranks;
    return ranks == 1 ? low : low + (high - low) * slot / (ranks - 1);
  });
}

Expected<DelayModel::Term> lognormal_term(const std::string& term, const std::string& value,
                                          std::uint64_t seed) {
  const auto parts = split(value, ":");
  const auto mu = parts ? finite_number_in(parts->first) : std::nullopt;
  const auto sigma = parts ? finite_number_in(parts->second) : std::nullopt;
  if (!mu || !sigma || *sigma < 0)
    return bad_term(term, "lognormal=MU:SIGMA in log-seconds, SIGMA >= 0");
  return DelayModel::Term([mu = *mu, sigma = *sigma, seed](Rank r, Step s) {
    Rng rng = stream(seed, r, s);
    const double seconds = std::exp(mu + sigma * std::normal_distribution<double>()(rng));
    return from_seconds(std::min(seconds, 3600.0));  // a tail must not stop the run for ever
  });
}

Expected<void> add_length(DelayModel& model, const std::string& term, const std::string& value) {
  const auto delay = parse_duration(value);
  if (!delay) return bad_term(term, delay.error().message);
  if (*delay == Duration::zero()) return bad_term(term, "more than 0 for a time step");
  model.add_per_time_step(*delay);
  return {};
}

std::optional<std::int64_t> parse_whole(const std::string& text, std::int64_t below) {
  const auto number = finite_number_in(text);
  if (!number || *number < 0 || *number >= static_cast<double>(below) ||
      *number != std::floor(*number))
    return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

// "KIND:RANK@STEP:DUR"; of a link "link:FROM-TO@STEP:DUR".
Expected<Stall> parse_stall(const std::string& term, const std::string& value, std::int32_t ranks,
                            std::int32_t servers) {
  const Error wrong =
      bad_term(term,
               "stall=compute:R@STEP:DUR, stall=data:R@STEP:DUR, stall=link:FROM-TO@STEP:DUR or "
               "stall=server:R@STEP:DUR, with ranks in 0.." +
                   std::to_string(ranks + servers - 1) +
                   (servers > 0 ? ", servers from " + std::to_string(ranks) : ", no servers"));
  constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;
  const auto kind = split(value, ":");
  const auto place = kind ? split(kind->second, "@") : std::nullopt;
  const auto time = place ? split(place->second, ":") : std::nullopt;
  const auto step = time ? parse_whole(time->first, kMostSteps) : std::nullopt;
  if (!step) return wrong;
  const auto length = parse_duration(time->second);
  if (!length) return bad_term(term, length.error().message);
  Stall stall;
  stall.step = *step;
  stall.length = *length;
  const auto ends = split(place->first, "-");
  const auto rank = parse_whole(ends ? ends->first : place->first, ranks + servers);
  const auto peer = ends ? parse_whole(ends->second, ranks + servers) : std::nullopt;
  if (!rank || (kind->first == "link") != peer.has_value()) return wrong;
  stall.rank = static_cast<Rank>(*rank);
  stall.peer = static_cast<Rank>(peer.value_or(-1));
  if (kind->first == "compute" && *rank < ranks)
    stall.kind = Stall::Kind::compute;
  else if (kind->first == "data" && *rank < ranks)
    stall.kind = Stall::Kind::data;
  else if (kind->first == "link" && stall.rank != stall.peer)
    stall.kind = Stall::Kind::link;
  else if (kind->first == "server" && *rank >= ranks)
    stall.kind = Stall::Kind::server;
  else
    return wrong;
  return stall;
}

Expected<void> add_term(DelayModel& model, const std::string& term, std::int32_t ranks,
                        std::uint64_t seed, std::int32_t servers) {
  if (term == "length") return add_length(model, term, kUsualPerTimeStep);
  const auto parts = split(term, "=");
  if (!parts)
    return bad_term(
        term,
        "rank=R:DUR, random=K:DUR, rotate=DUR..DUR, length[=DUR], lognormal=MU:SIGMA or "
        "stall=KIND:R@STEP:DUR");
  const auto& [name, value] = *parts;
  if (name == "length") return add_length(model, term, value);
  if (name == "stall") {
    const auto stall = parse_stall(term, value, ranks, servers);
    if (!stall) return stall.error();
    model.add(*stall);
    return {};
  }
  Expected<DelayModel::Term> parsed = unknown_name(
      "--delay kind", name, {"rank", "random", "rotate", "length", "lognormal", "stall"});
  if (name == "rank") parsed = rank_term(term, value, ranks);
  if (name == "random") parsed = random_term(term, value, ranks, seed);
  if (name == "rotate") parsed = rotate_term(term, value, ranks);
  if (name == "lognormal") parsed = lognormal_term(term, value, seed);
  if (!parsed) return parsed.error();
  model.add(std::move(*parsed));
  return {};
}

}  // namespace

Expected<Duration> parse_duration(const std::string& text) {
  const auto unit_at = text.find_first_not_of("0123456789.");
  const std::string unit = unit_at == std::string::npos ? "" : text.substr(unit_at);
  const double scale = unit == "ns" ? 1e-9 : unit == "us" ? 1e-6 : unit == "ms" ? 1e-3 : 1;
  const auto number = finite_number_in(text.substr(0, unit_at));
  if (!number || *number < 0 || (unit != "s" && scale == 1) || *number * scale > 1e6)
    return bad_input("a duration like 300ms or 0.3s, not '" + text + "'");
  // Rounded: 495538us has no exact double in seconds.
  return Duration(std::llround(*number * scale * 1e9));
}

Duration DelayModel::operator()(Rank rank, Step step, std::int64_t length) const {
  Duration sum = per_time_step_ * length;
  for (const Term& term : terms_) sum += term(rank, step);
  sum += of_compute(rank, step);
  return sum + stalled(Stall::Kind::compute, rank, step);
}

Duration DelayModel::of_compute(Rank rank, Step step) const {
  return compute_ ? compute_(rank, step) : Duration{0};
}

void DelayModel::add(const RankPause& pause) {
  const auto later = std::upper_bound(
      pauses_.begin(), pauses_.end(), pause,
      [](const RankPause& one, const RankPause& other) { return one.at < other.at; });
  pauses_.insert(later, pause);
}

Duration DelayModel::with_pauses(Rank rank, Timestamp begin, Duration work) const {
  Timestamp end = begin + work;
  Timestamp counted = begin;  // of all pauses until then
  for (const RankPause& pause : pauses_) {
    if (pause.rank != rank || pause.at > end || pause.end() <= counted) continue;
    end += pause.end() - std::max(pause.at, counted);
    counted = pause.end();
  }
  return end - begin;
}

Duration DelayModel::of_data(Rank rank, Step step) const {
  return stalled(Stall::Kind::data, rank, step);
}

Duration DelayModel::stalled(Stall::Kind kind, Rank rank, Step step) const {
  Duration sum{0};
  for (const Stall& stall : stalls_)
    if (stall.kind == kind && stall.rank == rank && stall.step == step) sum += stall.length;
  return sum;
}

Expected<DelayModel> parse_delay(const std::string& spec, std::int32_t ranks, std::uint64_t seed,
                                 std::int32_t servers) {
  DelayModel model;
  std::istringstream in(spec);
  for (std::string term; std::getline(in, term, ',');)
    if (auto added = add_term(model, term, ranks, seed, servers); !added) return added.error();
  return model;
}

}  // namespace grapevine
