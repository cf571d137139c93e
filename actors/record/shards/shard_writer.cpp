#include "actors/record/shards/shard_writer.hpp"

#include <fmt/format.h>

#include <utility>

#include "actors/record/file_mark.hpp"
#include "actors/record/files.hpp"
#include "actors/record/shards/cut_transfer.hpp"
#include "actors/record/shards/shard_folder.hpp"
#include "actors/run/state_bytes.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

// Process 0 makes the folder while the ranks take their cut; a shared one may show files late.
constexpr Duration kLookInterval = std::chrono::milliseconds(100);
constexpr int kLooks = 50;

}  // namespace

void ShardWriterState::init(ShardWriterActor::stateful_pointer<ShardWriterState> self,
                            ShardWriterConfig config) {
  self_ = self;
  config_ = std::move(config);
}

void ShardWriterState::on_store(StoreState order) {
  const Rank rank = order.snapshot.rank;
  orders_.erase(rank);  // of a cut that was given up
  const auto placed = orders_.emplace(rank, Order{std::move(order), 0, std::nullopt}).first;
  attempt(rank, [&] { place(rank, placed->second); });
}

// The states of later cuts may fit.
template <class Call>
void ShardWriterState::attempt(Rank rank, Call call) {
  try {
    call();
  } catch (...) {
    const auto order = orders_.find(rank);
    if (order == orders_.end()) throw;
    refuse(rank, order->second.store, exception_line(std::current_exception()));
    orders_.erase(order);
  }
}

void ShardWriterState::on_look_again(LookAgain again) {
  const auto found = orders_.find(again.rank);
  if (found != orders_.end() && found->second.store.snapshot.id == again.id)
    attempt(again.rank, [&] { place(again.rank, found->second); });
}

// A folder that was shared before, and is not seen, may be a new one that a network file system
// does not show yet. Where it belonged to a cut that was given up, process 0 ignores the parts.
void ShardWriterState::place(Rank rank, Order& order) {
  if (shared_ == false) return begin_stream(rank, order);
  const StoreState& store = order.store;
  if (has_proof(store.folder, config_.nonce)) {
    shared_ = true;
    write(rank, order);
    orders_.erase(rank);
    return;
  }
  if (++order.looks < kLooks)
    return self_->delayed_send(ShardWriterActor{self_}, kLookInterval,
                               LookAgain{store.snapshot.id, rank});
  if (!shared_) shared_ = false;
  begin_stream(rank, order);
}

void ShardWriterState::write(Rank rank, const Order& order) {
  const StoreState& store = order.store;
  const std::vector<char> bytes = to_bytes(store.snapshot.state);
  const auto path = std::filesystem::path(store.folder) / rank_file(static_cast<std::size_t>(rank));
  const auto written = write_file_atomically(path, {bytes.data(), bytes.size()});
  if (!written) return refuse(rank, store, written.error().message);
  report(store, mark_of(bytes));
}

void ShardWriterState::begin_stream(Rank rank, Order& order) {
  const RankSnapshot& snapshot = order.store.snapshot;
  order.stream.emplace(transfer_of_cut(snapshot.id),
                       std::make_shared<const std::vector<FrozenTensor>>(
                           to_chunks(snapshot.state, StateStream::kPart)));
  order.store.snapshot.state = StateDict();
  send_parts(rank, order);
}

// The receiver is in process 0, whose CheckpointWriter stores them.
void ShardWriterState::send_parts(Rank rank, Order& order) {
  while (auto part = order.stream->next()) {
    Envelope envelope;
    envelope.from = rank;
    envelope.to = order.store.receiver;
    envelope.stamp.origin = rank;
    envelope.payload = *std::move(part);
    config_.transport->send(std::move(envelope));
  }
}

void ShardWriterState::on_stored(const PartStored& stored) {
  const auto found = orders_.find(stored.rank);
  if (found == orders_.end() || !found->second.stream ||
      found->second.stream->transfer() != transfer_of_cut(stored.id) ||
      !found->second.stream->arrived(stored.bytes))
    return;
  attempt(stored.rank, [&] {
    send_parts(stored.rank, found->second);
    if (!found->second.stream->done()) return;
    report(found->second.store, mark_of_parts(found->second.stream->parts()));
    orders_.erase(found);
  });
}

void ShardWriterState::report(const StoreState& order, const FileMark& mark) {
  const RankSnapshot& snapshot = order.snapshot;
  self_->send(config_.supervisor,
              StateStored{snapshot.id, snapshot.rank, snapshot.step, mark.bytes, mark.crc32});
}

void ShardWriterState::refuse(Rank rank, const StoreState& order, const std::string& reason) {
  self_->send(config_.supervisor,
              SnapshotRefused{order.snapshot.id, rank,
                              fmt::format("the state of rank {}: {}", rank, reason)});
}

ShardWriterActor::behavior_type shard_writer(
    ShardWriterActor::stateful_pointer<ShardWriterState> self, ShardWriterConfig config) {
  ShardWriterState& state = self->state;
  state.init(self, std::move(config));
  return {
      [&state](StoreState& order) { state.on_store(std::move(order)); },
      [&state](LookAgain again) { state.on_look_again(again); },
      [&state](const PartStored& stored) { state.on_stored(stored); },
  };
}

}  // namespace grapevine
