#include "algorithms/collectives/activation.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "messages/check.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace {

Expected<std::optional<CountSchedule>> parse_quorum(const std::string& text) {
  if (text.empty()) return std::optional<CountSchedule>();
  auto schedule = CountSchedule::parse(text);
  if (!schedule) return schedule.error();
  return std::optional<CountSchedule>(std::move(*schedule));
}

}  // namespace

ActivationSettings read_activation(KeyReader& keys, const std::string& fallback) {
  constexpr double kMostSeconds = 1e6;
  ActivationSettings settings;
  settings.policy = keys.choice<ActivationPolicy>(
      "activation", fallback,
      {{"solo", ActivationPolicy::solo},
       {"majority", ActivationPolicy::majority},
       {"quorum", ActivationPolicy::quorum}},
      "what begins a sum: the first rank that is ready, one drawn at random, or a quorum of ready "
      "ranks");
  keys.where("activation", "quorum", [&] {
    settings.quorum = keys.parsed<std::optional<CountSchedule>>(
        "quorum", "", "a whole number, at least 1, or EPOCH:N,…", &parse_quorum,
        "ranks that must be ready, by epoch; more than half by default");
    settings.grace = keys.number("grace", 0, {0, kMostSeconds},
                                 "seconds that a quorum waits for the ranks that are not ready");
  });
  return settings;
}

Expected<void> check_quorum(const ActivationSettings& settings, std::int32_t ranks) {
  if (!settings.quorum) return {};
  for (const std::int64_t quorum : settings.quorum->values())
    if (quorum > ranks)
      return bad_input("wiring.quorum = " + std::to_string(quorum) + " of " +
                       std::to_string(ranks) + " ranks: choose at most as many");
  return {};
}

Trigger make_trigger(const ActivationSettings& settings, std::uint64_t seed, std::int64_t number,
                     double epoch, const std::vector<std::int32_t>& candidates, std::int32_t size) {
  Trigger trigger;
  const auto left = static_cast<std::int32_t>(candidates.size());
  switch (settings.policy) {
    case ActivationPolicy::solo:
      return trigger;
    case ActivationPolicy::majority:
      trigger.kind = Trigger::Kind::initiator;
      if (left > 0)
        trigger.position =
            candidates[mix_seed(seed, static_cast<std::uint64_t>(number)) % candidates.size()];
      return trigger;
    case ActivationPolicy::quorum:
      trigger.kind = Trigger::Kind::quorum;
      trigger.position = static_cast<std::int32_t>(number % size);
      trigger.count =
          settings.quorum ? static_cast<std::int32_t>(settings.quorum->at(epoch)) : size / 2 + 1;
      trigger.count = std::min(trigger.count, left);
      trigger.all = left;
      trigger.grace = settings.grace > 0;
      return trigger;
  }
  return trigger;
}

Activation::Activation(std::vector<Rank> ranks, std::int32_t position, std::int64_t operation,
                       Trigger trigger)
    : ranks_(std::move(ranks)), position_(position), operation_(operation), trigger_(trigger) {}

std::vector<OutgoingMessage> Activation::post() {
  const bool again = std::exchange(posted_, true);
  if (begun_) return {};
  switch (trigger_.kind) {
    case Trigger::Kind::first_ready:
      return begin();
    case Trigger::Kind::initiator:
      return position_ == trigger_.position ? begin() : std::vector<OutgoingMessage>();
    case Trigger::Kind::quorum:
      if (again) return {};
      if (position_ == trigger_.position) return count_ready();
      return {{ranks_[static_cast<std::size_t>(trigger_.position)], Activate{operation_, false}}};
  }
  return {};
}

std::vector<OutgoingMessage> Activation::on_message(const Activate& message) {
  GRAPEVINE_CHECK(message.operation == operation_, "activation of operation ", message.operation,
                  " in operation ", operation_);
  return message.begun ? begin() : count_ready();
}

std::vector<OutgoingMessage> Activation::count_ready() {
  if (++ready_ < trigger_.count) return {};
  in_grace_ = trigger_.grace && ready_ < trigger_.all;
  return in_grace_ ? std::vector<OutgoingMessage>() : begin();
}

std::vector<OutgoingMessage> Activation::begin() {
  if (std::exchange(begun_, true)) return {};
  std::vector<OutgoingMessage> out;
  const std::size_t size = ranks_.size();
  for (std::size_t distance = 1; distance < size; distance *= 2)
    out.push_back({ranks_[(static_cast<std::size_t>(position_) + distance) % size],
                   Activate{operation_, true}});
  return out;
}

Awaited Activation::awaited() const {
  const bool one = trigger_.kind == Trigger::Kind::initiator && trigger_.position != position_;
  return {one ? ranks_[static_cast<std::size_t>(trigger_.position)] : -1, PayloadKind::activate,
          operation_};
}

void Activation::fields(Archive& a) {
  a.flag("posted", posted_);
  a.flag("begun", begun_);
  a.whole("ready", ready_, 0, std::numeric_limits<std::int32_t>::max());
  a.flag("in_grace", in_grace_);
}

}  // namespace grapevine
