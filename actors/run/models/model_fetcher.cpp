#include "actors/run/models/model_fetcher.hpp"

#include <ATen/ops/empty.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/run/models/model_transfer.hpp"
#include "actors/unexpected_messages.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

bool is_bytes(const FrozenTensor& data, std::int64_t bytes) {
  return data.defined() && data.dtype() == at::kByte && data.numel() == bytes;
}

}  // namespace

void ModelFetcherState::init(ModelFetcherActor::stateful_pointer<ModelFetcherState> self,
                             ModelFetcherConfig config) {
  self_ = self;
  config_ = std::move(config);
  next_transfer_ = kFirstModelTransfer;
}

caf::result<FetchedModel> ModelFetcherState::on_fetch(FetchModel& order) {
  auto answer = self_->make_response_promise<FetchedModel>();
  waiting_.push_back({std::move(order), answer});
  start_waiting();
  return answer;
}

// Whose Peer receives the parts.
std::optional<Rank> ModelFetcherState::receiver() const {
  for (const Rank rank : config_.receivers)
    if (lost_.count(rank) == 0) return rank;
  return std::nullopt;
}

void ModelFetcherState::start_waiting() {
  while (!waiting_.empty() &&
         (open_.empty() || open_elements_ + waiting_.front().order.count <= kMostElements)) {
    Fetch fetch = std::move(waiting_.front());
    waiting_.pop_front();
    start(std::move(fetch));
  }
}

void ModelFetcherState::start(Fetch fetch) {
  try {
    fetch.values = at::empty({fetch.order.count}, at::kFloat);
  } catch (...) {  // no memory
    fetch.answer.deliver(FetchedModel{{}, false, exception_line(std::current_exception())});
    return;
  }
  const FetchId id = next_fetch_++;
  const ModelSenderActor& sender = fetch.order.offer.sender;
  if (monitored_.insert(sender.address()).second) self_->monitor(sender);
  if (fetch.order.count == 0) {
    fetch.answer.deliver(FetchedModel{FrozenTensor::freeze(std::move(fetch.values)), false, ""});
    return;
  }
  open_elements_ += fetch.order.count;
  open_.emplace(id, std::move(fetch));
  ask_for_parts(id);
}

void ModelFetcherState::ask_for_parts(FetchId id) {
  for (auto open = open_.find(id); open != open_.end(); open = open_.find(id)) {
    Fetch& fetch = open->second;
    if (fetch.parts_out == kWindow || fetch.asked == fetch.order.count) return;
    const std::int64_t begin = fetch.asked;
    const std::int64_t count = std::min(kMostModelPart, fetch.order.count - begin);
    fetch.asked += count;
    ++fetch.parts_out;
    ask_for(id, begin, count);
  }
}

// REQUIRES: the fetch is open. It ends where process 0 has no rank.
void ModelFetcherState::ask_for(FetchId id, std::int64_t begin, std::int64_t count) {
  const std::optional<Rank> to = receiver();
  if (!to) return refuse(id, false, "process 0 has no rank any more");
  const FetchModel& order = open_.at(id).order;
  const std::int64_t transfer = next_transfer_++;
  parts_[transfer] = {id, begin, count, *to};
  self_
      ->request(
          order.offer.sender, caf::infinite,
          SendModel{order.offer.rank, order.offer.epoch, order.begin + begin, count, transfer, *to})
      .then(
          [this, id](ModelSent& sent) {
            if (!sent.why.empty()) refuse(id, false, std::move(sent.why));
          },
          [this, id](const caf::error&) { refuse(id, true, ""); });
}

// Asks again for the parts that this Peer should have received.
void ModelFetcherState::ask_again(Rank receiver) {
  std::vector<Part> missing;
  for (auto it = parts_.begin(); it != parts_.end();) {
    if (it->second.to == receiver) missing.push_back(it->second);
    it = it->second.to == receiver ? parts_.erase(it) : std::next(it);
  }
  for (const Part& part : missing)
    if (open_.count(part.fetch) > 0) ask_for(part.fetch, part.begin, part.count);
}

// A part of a fetch that has ended since, or that was never asked for, is of no use.
void ModelFetcherState::on_part(const StatePart& part) {
  const auto found = parts_.find(part.chunk.transfer);
  if (found == parts_.end()) return;
  const Part place = found->second;
  Fetch& fetch = open_.at(place.fetch);
  const bool expected = part.from == fetch.order.offer.rank &&
                        part.chunk.offset == kModelElement * (fetch.order.begin + place.begin) &&
                        is_bytes(part.chunk.data, kModelElement * place.count);
  if (!expected)
    return refuse(place.fetch, false,
                  fmt::format("rank {} sent other numbers than those of its model that it was "
                              "asked for",
                              part.from));
  std::memcpy(fetch.values.data_ptr<float>() + place.begin, part.chunk.data.raw(),
              static_cast<std::size_t>(kModelElement * place.count));
  parts_.erase(found);
  fetch.arrived += place.count;
  --fetch.parts_out;
  self_->send(config_.supervisor, Progress{});
  if (fetch.arrived < fetch.order.count) return ask_for_parts(place.fetch);
  end(place.fetch, FetchedModel{FrozenTensor::freeze(std::move(fetch.values)), false, ""});
}

void ModelFetcherState::refuse(FetchId id, bool lost, std::string why) {
  if (open_.count(id) > 0) end(id, FetchedModel{{}, lost, std::move(why)});
}

void ModelFetcherState::end(FetchId id, FetchedModel result) {
  for (auto it = parts_.begin(); it != parts_.end();)
    it = it->second.fetch == id ? parts_.erase(it) : std::next(it);
  Fetch& fetch = open_.at(id);
  open_elements_ -= fetch.order.count;
  fetch.answer.deliver(std::move(result));
  open_.erase(id);
  start_waiting();
}

template <class Predicate>
void ModelFetcherState::lose_if(Predicate lost) {
  std::deque<Fetch> waiting;
  for (Fetch& fetch : std::exchange(waiting_, {}))
    if (lost(fetch.order.offer))
      fetch.answer.deliver(FetchedModel{{}, true, ""});
    else
      waiting.push_back(std::move(fetch));
  waiting_ = std::move(waiting);
  std::vector<FetchId> ended;
  for (const auto& [id, fetch] : open_)
    if (lost(fetch.order.offer)) ended.push_back(id);
  for (const FetchId id : ended) refuse(id, true, "");
}

void ModelFetcherState::on_lost(const PeerLost& lost) {
  lost_.insert(lost.peer);
  lose_if([&](const ModelOffer& offer) { return offer.rank == lost.peer; });
  ask_again(lost.peer);
}

void ModelFetcherState::on_members(const MembersChanged& changed) {
  for (const Rank rank : changed.joining) lost_.erase(rank);
}

void ModelFetcherState::on_down(const caf::actor_addr& sender) {
  monitored_.erase(sender);
  lose_if([&](const ModelOffer& offer) { return offer.sender.address() == sender; });
}

ModelFetcherActor::behavior_type model_fetcher(
    ModelFetcherActor::stateful_pointer<ModelFetcherState> self, ModelFetcherConfig config) {
  ModelFetcherState& state = self->state;
  state.init(self, std::move(config));
  ignore_unexpected_messages(*self);
  self->set_down_handler([&state](const caf::down_msg& down) { state.on_down(down.source); });
  return {[&state](FetchModel& order) { return state.on_fetch(order); },
          [&state](const StatePart& part) { state.on_part(part); },
          [&state](const PeerLost& lost) { state.on_lost(lost); },
          [&state](const MembersChanged& changed) { state.on_members(changed); }};
}

}  // namespace grapevine
