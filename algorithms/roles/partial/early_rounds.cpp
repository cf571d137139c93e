#include "algorithms/roles/partial/early_rounds.hpp"

#include <iterator>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {

// A part of a sum shows that its round has begun.
void EarlyRounds::hold(Rank from, std::int64_t round, Payload payload) {
  if (const auto* activate = std::get_if<Activate>(&payload)) {
    activations_[round].push_back(*activate);
    return;
  }
  activations_[round].push_back({round, true});
  if (!PartialAllReduce::is_part_of_sum(payload))
    return tallies_.hold(std::move(std::get<Chunk>(payload)));
  const auto out = reduction_->on_message(from, std::move(payload));
  GRAPEVINE_CHECK(out.empty(), "a message of round ", round, " was used before that round");
}

std::vector<OutgoingMessage> EarlyRounds::pass_to(PartialAllReduce& reduce, Rank rank) {
  std::vector<OutgoingMessage> out;
  const auto add = [&out](std::vector<OutgoingMessage> more) {
    std::move(more.begin(), more.end(), std::back_inserter(out));
  };
  const auto early = activations_.extract(reduce.operation());
  if (!early.empty())
    for (const Activate& activate : early.mapped()) add(reduce.on_activate(activate));
  for (Chunk& chunk : tallies_.take(PartialAllReduce::tally_of(reduce.operation())))
    add(reduce.on_message(rank, std::move(chunk)));
  return out;
}

void EarlyRounds::fields(Archive& a) {
  a.keyed("early.rounds", "early.", activations_,
          [](Archive& inner, std::vector<Activate>& messages) {
            inner.items("messages", messages, [](Archive& one, Activate& message) {
              one.whole("round", message.operation);
              one.flag("begun", message.begun);
            });
          });
  a.part("early_chunks", tallies_);
}

}  // namespace grapevine
