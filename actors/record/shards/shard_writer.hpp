// ShardWriter: stores the states of the ranks of a process other than process 0 for a checkpoint.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "actors/protocol.hpp"
#include "actors/record/state_stream.hpp"
#include "net/transport.hpp"

namespace grapevine {

struct ShardWriterConfig {
  std::shared_ptr<Transport> transport;
  SupervisorActor supervisor;
  std::string nonce;  // of the run: proves a shared folder
};

// Where the folder of the checkpoint is shared with process 0, which its proof shows, the state is
// written there. Elsewhere it is sent to process 0, in parts of at most 4 MiB over the transport,
// of which few are on their way. The supervisor then receives StateStored; or SnapshotRefused where
// the state cannot be stored, for example without memory for one more copy of it.
class ShardWriterState {
 public:
  const char* name = "shard_writer";

  void init(ShardWriterActor::stateful_pointer<ShardWriterState> self, ShardWriterConfig config);
  void on_store(StoreState order);
  void on_look_again(LookAgain again);
  void on_stored(const PartStored& stored);

 private:
  struct Order {
    StoreState store;
    int looks = 0;  // for the proof
    std::optional<StateStream> stream;
  };

  // The order of the rank is refused where it throws.
  template <class Call>
  void attempt(Rank rank, Call call);
  void place(Rank rank, Order& order);
  void write(Rank rank, const Order& order);
  void begin_stream(Rank rank, Order& order);
  void send_parts(Rank rank, Order& order);
  void report(const StoreState& order, const FileMark& mark);
  void refuse(Rank rank, const StoreState& order, const std::string& reason);

  ShardWriterActor::stateful_pointer<ShardWriterState> self_ = nullptr;
  ShardWriterConfig config_;
  std::map<Rank, Order> orders_;  // the newest of each rank, until it is stored
  std::optional<bool> shared_;    // once it is known
};

// Spawn it detached.
ShardWriterActor::behavior_type shard_writer(
    ShardWriterActor::stateful_pointer<ShardWriterState> self, ShardWriterConfig config);

}  // namespace grapevine
