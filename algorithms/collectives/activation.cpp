#include "algorithms/collectives/activation.hpp"

#include <limits>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {

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
  return ++ready_ >= trigger_.count ? begin() : std::vector<OutgoingMessage>();
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

void Activation::fields(Archive& a) {
  a.flag("posted", posted_);
  a.flag("begun", begun_);
  a.whole("ready", ready_, 0, std::numeric_limits<std::int32_t>::max());
}

}  // namespace grapevine
