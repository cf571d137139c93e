#include "algorithms/schedules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "messages/check.hpp"
#include "messages/text/number_text.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

constexpr double kPi = 3.14159265358979323846;
// Goyal et al. 2017: the reference batch of the linear scaling rule.
constexpr double kReferenceBatch = 256;

// Pieces between commas; an empty text is one empty piece, so that "1,,2" and "" are refused later.
std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (true) {
    const std::size_t comma = text.find(',');
    pieces.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return pieces;
    text.remove_prefix(comma + 1);
  }
}

Error bad_lr_spec(const std::string& spec, const std::string& expected) {
  return bad_input("--lr-schedule '" + spec + "': expected " + expected);
}

Expected<void> check_rates(const LrConfig& config) {
  if (!std::isfinite(config.lr) || config.lr < 0)
    return bad_input("--lr " + number_text(config.lr) + ": expected a finite number >= 0");
  if (!std::isfinite(config.warmup_epochs) || config.warmup_epochs < 0)
    return bad_input("--warmup-epochs " + number_text(config.warmup_epochs) +
                     ": expected a finite number >= 0");
  if (!(config.warmup_from >= 0 && config.warmup_from <= 1))
    return bad_input("--warmup-from " + number_text(config.warmup_from) +
                     ": expected a part of the rate, from 0 to 1");
  if (config.per_256 && config.global_batch < 1)
    return bad_input("bad global batch " + std::to_string(config.global_batch) +
                     " for a rate per 256 samples: expected --batch-size and --workers >= 1");
  return {};
}

}  // namespace

Expected<LrSchedule> LrSchedule::make(const LrConfig& config) {
  return make(config, Order::of_all);
}

Expected<void> LrSchedule::check(LrConfig config) {
  config.steps_per_epoch = 1;
  if (auto made = make(config, Order::of_each_unit); !made) return made.error();
  return {};
}

Expected<LrSchedule> LrSchedule::make(const LrConfig& config, Order milestones) {
  if (Expected<void> rates = check_rates(config); !rates) return rates.error();
  LrSchedule schedule;
  schedule.base_ = config.per_256
                       ? config.lr * static_cast<double>(config.global_batch) / kReferenceBatch
                       : config.lr;
  schedule.warmup_from_ = config.per_256 && config.warmup_from == 0
                              ? std::min(config.lr, schedule.base_)
                              : config.warmup_from * schedule.base_;
  schedule.step_epochs_ = config.steps_per_epoch > 0 ? 1 / config.steps_per_epoch : 0;
  schedule.warmup_steps_ = config.warmup_steps;
  schedule.warmup_epochs_ =
      config.warmup_steps > 0 ? config.warmup_steps * schedule.step_epochs_ : config.warmup_epochs;
  schedule.warmup_.length = schedule.warmup_epochs_;
  schedule.run_.length = config.epochs;

  if (Expected<void> spec = schedule.parse_spec(config.spec, milestones); !spec)
    return spec.error();
  if (schedule.follows_the_end() && !(std::isfinite(config.epochs) && config.epochs > 0))
    return bad_input("--epochs " + number_text(config.epochs) + " for --lr-schedule " +
                     config.spec + ": expected a finite number above 0");
  if (schedule.kind_ == Kind::one_cycle && schedule.warmup_epochs_ > 0)
    return bad_input((config.warmup_steps > 0
                          ? "--warmup-steps " + number_text(config.warmup_steps)
                          : "--warmup-epochs " + number_text(config.warmup_epochs)) +
                     ": --lr-schedule one-cycle has a warm-up of its own: leave it out");
  return schedule;
}

// Epochs, or steps with an s behind them; nothing for other texts, or where the length of an epoch
// is not known.
std::optional<LrSchedule::Moment> LrSchedule::parse_moment(std::string_view text) const {
  const bool steps = !text.empty() && text.back() == 's';
  if (steps) text.remove_suffix(1);
  const std::optional<double> number = finite_number_in(text);
  if (!number || (steps && step_epochs_ == 0)) return std::nullopt;
  return Moment{*number, steps};
}

double LrSchedule::epochs_of(const Moment& moment) const {
  return moment.in_steps ? moment.number * step_epochs_ : moment.number;
}

LrSchedule LrSchedule::among(const Horizon& horizon) const {
  LrSchedule changed = *this;
  if (step_epochs_ > 0) changed.step_epochs_ = 1 / horizon.steps_per_epoch;
  if (!horizon.by_samples && horizon.steps > 0)
    changed.run_ = Progress::of_steps(static_cast<double>(horizon.steps), horizon);
  if (kind_ == Kind::exponential && moments_[0].in_steps)
    changed.period_ = Progress::of_steps(moments_[0].number, horizon);
  if (warmup_steps_ > 0) {
    changed.warmup_epochs_ = horizon.epoch_at(warmup_steps_);
    changed.warmup_ = Progress::of_steps(warmup_steps_, horizon);
  }
  for (std::size_t i = 0; i < milestones_.size(); ++i)
    if (moments_[i].in_steps) changed.milestones_[i] = horizon.epoch_at(moments_[i].number);
  return changed;
}

// "GAMMA@T1,T2,…"
Expected<void> LrSchedule::parse_step(const std::string& spec, const std::string& argument,
                                      Order order) {
  const Error bad =
      bad_lr_spec(spec,
                  "step:GAMMA@T1,T2,… with GAMMA >= 0 and ascending epochs above 0, or steps "
                  "such as 500s");
  const std::size_t at_sign = argument.find('@');
  if (at_sign == std::string::npos) return bad;
  const std::optional<double> gamma =
      finite_number_in(std::string_view(argument).substr(0, at_sign));
  if (!gamma || *gamma < 0) return bad;
  double last_of_epochs = 0, last_of_steps = 0;
  for (const std::string_view piece :
       split_at_commas(std::string_view(argument).substr(at_sign + 1))) {
    const std::optional<Moment> moment = parse_moment(piece);
    if (!moment) return bad;
    const bool apart = order == Order::of_each_unit && moment->in_steps;
    double& last = apart ? last_of_steps : last_of_epochs;
    if (epochs_of(*moment) <= last) return bad;
    last = epochs_of(*moment);
    milestones_.push_back(epochs_of(*moment));
    moments_.push_back(*moment);
  }
  gamma_ = *gamma;
  return {};
}

// "GAMMA[@PERIOD]"
Expected<void> LrSchedule::parse_exponential(const std::string& spec, const std::string& argument) {
  const std::size_t at_sign = argument.find('@');
  const std::optional<double> gamma =
      finite_number_in(std::string_view(argument).substr(0, at_sign));
  const std::optional<Moment> period =
      at_sign == std::string::npos ? Moment{1}
                                   : parse_moment(std::string_view(argument).substr(at_sign + 1));
  if (!gamma || *gamma <= 0 || !period || period->number <= 0)
    return bad_lr_spec(spec,
                       "exponential:GAMMA[@PERIOD] with GAMMA above 0 and a PERIOD of epochs, "
                       "or of steps such as 500s, above 0");
  gamma_ = *gamma;
  moments_ = {*period};
  period_.length = epochs_of(*period);
  return {};
}

// Up to as many numbers as there are defaults.
Expected<void> LrSchedule::parse_numbers(const std::string& spec, const std::string& argument) {
  const bool cycle = kind_ == Kind::one_cycle;
  const Error bad = bad_lr_spec(
      spec, cycle ? "one-cycle[:UP[,DIV[,FINAL]]] with UP between 0 and 1, DIV and FINAL at least 1"
                  : "polynomial[:POWER[,END]] with POWER above 0 and END from 0 to 1");
  numbers_ = cycle ? std::vector<double>{0.3, 25, 1e4} : std::vector<double>{1, 0};
  if (spec.find(':') != std::string::npos) {
    const std::vector<std::string_view> pieces = split_at_commas(argument);
    if (pieces.size() > numbers_.size()) return bad;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::optional<double> number = finite_number_in(pieces[i]);
      if (!number) return bad;
      numbers_[i] = *number;
    }
  }
  const bool fits = cycle
                        ? numbers_[0] > 0 && numbers_[0] < 1 && numbers_[1] >= 1 && numbers_[2] >= 1
                        : numbers_[0] > 0 && numbers_[1] >= 0 && numbers_[1] <= 1;
  return fits ? Expected<void>{} : bad;
}

Expected<void> LrSchedule::parse_spec(const std::string& spec, Order milestones) {
  const std::size_t colon = spec.find(':');
  const std::string kind = spec.substr(0, colon);
  const bool has_argument = colon != std::string::npos;
  const std::string argument = has_argument ? spec.substr(colon + 1) : "";
  if (spec == "constant") return {};
  if (kind == "step") {
    kind_ = Kind::step;
    return parse_step(spec, argument, milestones);
  }
  if (kind == "cosine") {
    const std::optional<double> floor = has_argument ? finite_number_in(argument) : 0.0;
    if (!floor || *floor < 0 || *floor > 1)
      return bad_lr_spec(spec, "cosine or cosine:FLOOR with FLOOR between 0 and 1");
    kind_ = Kind::cosine;
    gamma_ = *floor;
    return {};
  }
  if (kind == "exponential") {
    kind_ = Kind::exponential;
    return parse_exponential(spec, argument);
  }
  if (kind == "polynomial" || kind == "one-cycle") {
    kind_ = kind == "polynomial" ? Kind::polynomial : Kind::one_cycle;
    return parse_numbers(spec, argument);
  }
  return bad_lr_spec(spec,
                     "constant, step:GAMMA@T1,T2,…, cosine[:FLOOR], polynomial[:POWER[,END]], "
                     "exponential:GAMMA[@PERIOD] or one-cycle[:UP[,DIV[,FINAL]]]");
}

// Half a cosine from `begin` to `end`, `progress` in [0, 1].
static double half_cosine(double begin, double end, double progress) {
  return end + (begin - end) * 0.5 * (1 + std::cos(kPi * progress));
}

// The factor of the rate.
double LrSchedule::decay_at(double epoch) const {
  const double progress = std::clamp(run_.at(epoch), 0.0, 1.0);
  double factor = 1;
  switch (kind_) {
    case Kind::constant:
      return 1;
    case Kind::step:
      for (const double milestone : milestones_)
        if (epoch >= milestone) factor *= gamma_;
      return factor;
    case Kind::cosine:
      return half_cosine(1, gamma_, progress);
    case Kind::polynomial:
      return numbers_[1] + (1 - numbers_[1]) * std::pow(1 - progress, numbers_[0]);
    case Kind::exponential:
      return std::pow(gamma_, period_.at(epoch));
    case Kind::one_cycle: {
      // The step before the part UP is over has the rate lr, and the last one that of the end.
      const double up = numbers_[0], first = 1 / numbers_[1];
      const double peak = up - step_epochs_ / run_.length;
      if (progress < peak) return half_cosine(first, 1, progress / peak);
      return half_cosine(1, first / numbers_[2], std::min((progress - peak) / (1 - up), 1.0));
    }
  }
  return factor;
}

double LrSchedule::at(double epoch) const {
  GRAPEVINE_CHECK(epoch >= 0, "learning rate asked for epoch ", epoch);
  double rate = base_;
  if (const double end = epoch + step_epochs_; end < warmup_epochs_)
    rate = warmup_from_ + (base_ - warmup_from_) * warmup_.at(end);
  // The decay multiplies the warm-up, so that the rate has no jump where the warm-up ends.
  return rate * decay_at(epoch);
}

// Counts of ranks or peers, which are 32 bits wide.
constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();

Expected<CountSchedule> CountSchedule::parse(const std::string& text, std::int64_t least) {
  const Error bad =
      bad_input("bad count '" + text + "': expected a whole number N >= " + std::to_string(least) +
                ", or EPOCH:N,EPOCH:N,… with ascending epochs from 0, like 0:1,30:2");
  CountSchedule schedule;
  if (const std::optional<std::int64_t> single = number_in<std::int64_t>(text)) {
    if (*single < least || *single > kMaxCount) return bad;
    schedule.entries_ = {{0.0, *single}};
    return schedule;
  }
  for (std::string_view piece : split_at_commas(text)) {
    const std::size_t colon = piece.find(':');
    if (colon == std::string_view::npos) return bad;
    const std::optional<double> epoch = finite_number_in(piece.substr(0, colon));
    const std::optional<std::int64_t> count = number_in<std::int64_t>(piece.substr(colon + 1));
    if (!epoch || !count || *count < least || *count > kMaxCount) return bad;
    const bool first = schedule.entries_.empty();
    if (first ? *epoch != 0 : *epoch <= schedule.entries_.back().first) return bad;
    schedule.entries_.emplace_back(*epoch, *count);
  }
  return schedule;
}

CountSchedule CountSchedule::constant(std::int64_t count) {
  CountSchedule schedule;
  schedule.entries_ = {{0.0, count}};
  return schedule;
}

CountSchedule read_counts(KeyReader& keys, const std::string& key, const std::string& fallback,
                          std::int64_t least, const std::string& explanation) {
  const auto parse = [least](const std::string& text) { return CountSchedule::parse(text, least); };
  return keys.parsed<CountSchedule>(
      key, fallback, "a whole number, at least " + std::to_string(least) + ", or EPOCH:N,…", parse,
      explanation);
}

std::int64_t CountSchedule::most() const {
  std::int64_t most = 0;
  for (const auto& [epoch, count] : entries_) most = std::max(most, count);
  return most;
}

std::int64_t CountSchedule::at(double epoch) const {
  GRAPEVINE_CHECK(!entries_.empty() && epoch >= 0, "count asked for epoch ", epoch);
  std::int64_t count = entries_.front().second;
  for (const auto& [from, value] : entries_)
    if (epoch >= from) count = value;
  return count;
}

std::vector<std::int64_t> CountSchedule::values() const {
  std::vector<std::int64_t> counts;
  for (const auto& entry : entries_) counts.push_back(entry.second);
  return counts;
}

std::string CountSchedule::to_string() const {
  if (entries_.size() == 1) return std::to_string(entries_.front().second);
  std::string text;
  for (const auto& [from, value] : entries_)
    text += (text.empty() ? "" : ",") + number_text(from) + ":" + std::to_string(value);
  return text;
}

Expected<DensitySchedule> DensitySchedule::parse(const std::string& density,
                                                 const std::string& warmup) {
  const auto is_density = [](std::optional<double> d) { return d && *d > 0 && *d <= 1; };
  DensitySchedule schedule;
  const std::optional<double> final_density = finite_number_in(density);
  if (!is_density(final_density))
    return bad_input("wiring.density = '" + density +
                     "': expected a number above 0, at most 1, like 0.01");
  schedule.density_ = *final_density;
  if (warmup == "none") return schedule;
  const Error bad = bad_input("wiring.density_warmup = '" + warmup +
                              "': expected none, dgc or densities like 0.25,0.0625, with @EPOCHS "
                              "for the epochs of each");
  const std::string_view text = warmup;
  const std::size_t at_sign = text.find('@');
  if (at_sign != std::string_view::npos) {
    const std::optional<double> epochs = finite_number_in(text.substr(at_sign + 1));
    if (!epochs || *epochs <= 0) return bad;
    schedule.epochs_each_ = *epochs;
  }
  const std::string_view list = text.substr(0, at_sign);
  for (const std::string_view piece :
       split_at_commas(list == "dgc" ? "0.25,0.0625,0.015625,0.004" : list)) {
    const std::optional<double> entry = finite_number_in(piece);
    if (!is_density(entry)) return bad;
    schedule.warmup_.push_back(*entry);
  }
  return schedule;
}

double DensitySchedule::at(double epoch) const {
  GRAPEVINE_CHECK(epoch >= 0, "density asked for epoch ", epoch);
  const double entry = std::floor(epoch / epochs_each_ + 1e-9);
  if (entry >= static_cast<double>(warmup_.size())) return density_;
  return std::max(density_, warmup_[static_cast<std::size_t>(entry)]);
}

std::int64_t DensitySchedule::entries(double epoch, std::int64_t d) const {
  // With a margin: 0.29 * 100 is below 29.
  const double kept = std::floor(at(epoch) * static_cast<double>(d) * (1 + 1e-12));
  return std::min(std::max<std::int64_t>(static_cast<std::int64_t>(kept), 1), d);
}

}  // namespace grapevine
