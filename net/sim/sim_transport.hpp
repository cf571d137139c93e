// SimTransport: a transport in virtual time, over a modelled network.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "messages/text/fnv1a.hpp"
#include "net/sim/link_faults.hpp"
#include "net/sim/network_model.hpp"
#include "net/transport.hpp"

namespace grapevine {

// Sees each message of a simulated run. Called with the transport's lock held: must not call it.
class NetworkWatch {
 public:
  virtual ~NetworkWatch() = default;
  virtual void on_sent(Timestamp, const Envelope&, std::uint64_t /*bytes*/) {}
  virtual void on_delivered(Timestamp, const Envelope&) {}
  virtual void on_lost(Timestamp, const Envelope&) {}
  virtual void on_detached(Timestamp, Rank) {}
  // A rank that was detached is attached again.
  virtual void on_returned(Timestamp /*at*/, Rank /*rank*/) {}
  // A rank is attached for the first time, after the start.
  virtual void on_joined(Timestamp /*at*/, Rank /*rank*/) {}
};

struct SimConfig {
  std::int32_t world_size = 1;
  NetworkModel network;
  std::vector<LinkFault> link_faults;
  std::vector<RankPause> pauses;
  std::uint64_t seed = 0;  // of jitter and loss
  double model_scale = 1;  // see scaled_wire_size()
  // The messages that NetworkModel::loss may take; null: none.
  std::function<bool(const Envelope&)> may_lose;
};

// The owner moves the time: it reads next_at(), sets its clock to it and calls run_next(), which
// delivers a message or moves it to the next NIC on its way. Equal configs and equal calls give
// equal deliveries. FIFO per ordered pair of ranks; messages of different pairs overtake each other
// as the network has it.
//
// A rank that detaches is dead: messages that have not left its NIC are lost, nothing reaches it
// any more, and peer_down reaches each other rank after the last message of the dead one.
// Inbox::lost() reports a lost message for which its receiver must not wait.
class SimTransport final : public Transport {
 public:
  // REQUIRES: world_size >= 1; `now` is monotonic.
  SimTransport(SimConfig config, std::function<Timestamp()> now);

  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) override;
  void detach(Rank rank) override;
  void send(Envelope envelope) override;
  TransportCounters counters(Rank rank) const override;
  std::int32_t world_size() const override { return config_.world_size; }
  bool by_reference(Rank, Rank) const override { return true; }
  std::uint64_t size_of(const Envelope& envelope) const override;

  // When the next event of the network is due; nothing: none is under way.
  std::optional<Timestamp> next_at() const;
  // Runs it. REQUIRES: next_at() is not later than the clock.
  void run_next();
  // Ends all ranks without reports to the others: at the end of a run.
  void close();

  // Over all deliveries, losses and ends of ranks so far, with their times.
  std::uint64_t hash() const;

  // Null: no watch. REQUIRES: before the run.
  void set_watch(std::shared_ptr<NetworkWatch> watch) { watch_ = std::move(watch); }
  void set_clock(std::function<Timestamp()> now) { now_ = std::move(now); }

 private:
  static constexpr std::int32_t kNoNode = -1;

  // pause: of its sender; nic: of its receiver.
  enum class Stage : std::uint8_t { pause, uplink, downlink, link, nic, delivery };
  struct Pair {
    Timestamp entered{0};  // the network behind the sender's NIC
    Timestamp passed{0};   // the faults of the link
    Timestamp delivered{0};
    Timestamp slow_until{0};  // a slow link is busy
    std::uint64_t messages = 0;
  };
  struct Flight {
    Envelope envelope;
    bool is_down = false;  // `envelope.from` is dead
    bool lost = false;
    std::uint64_t bytes = 0;
    std::uint32_t from_life = 0, to_life = 0;
    Timestamp left{0};        // the last bit has left the sender's NIC
    Timestamp not_before{0};  // the last bit can have arrived
    Duration jitter{0};
    Stage stage = Stage::nic;
    Pair* pair = nullptr;  // of its ranks
  };
  struct Event {
    Timestamp at;
    std::uint64_t number;
    std::uint32_t flight;         // if there is no
    std::int32_t node = kNoNode;  // whose sending NIC is free
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  // A node sends to other nodes one message after the other.
  struct SendingNic {
    Timestamp busy_until{0};
    std::deque<std::uint32_t> waiting;  // flights
  };
  struct OfRank {
    std::shared_ptr<Inbox> inbox;
    std::uint32_t life = 0;
    std::vector<Timestamp> ends;  // of its lives
    std::int64_t held = 0;        // messages that wait for the end of its pause
    TransportCounters sent;
    Rank newest_to = -1;     // whom it has sent to last
    Pair* newest = nullptr;  // and their pair
  };

  bool is_inside(Rank rank) const { return rank >= 0 && rank < config_.world_size; }
  OfRank& of(Rank rank);
  const OfRank& of(Rank rank) const;
  Pair& pair(Rank from, Rank to);
  double uniform(std::uint64_t purpose, Rank from, Rank to, std::uint64_t number) const;
  Duration jitter(Rank from, Rank to, std::uint64_t number) const;
  bool draws_loss(const Envelope& envelope, std::uint64_t number) const;
  Timestamp after_pauses(Rank rank, Timestamp time) const;

  std::uint32_t free_slot();
  void launch(std::uint32_t slot);
  void enter_nic(std::uint32_t slot, Timestamp now);
  void transmit(std::uint32_t slot, SendingNic& nic, Timestamp now);
  void send_next(std::int32_t node, Timestamp now);
  void depart(std::uint32_t slot, Timestamp begin);
  bool is_unsent(const Flight& flight) const;
  void discard(std::uint32_t slot, Timestamp now);
  void push(Timestamp at, std::uint32_t flight);
  void pass(std::uint32_t number, Timestamp now);
  Timestamp pass_resource(Flight& flight, Timestamp now, Timestamp& busy_until,
                          const LinkModel& link);
  Timestamp pass_link(Flight& flight, Timestamp now);
  void schedule_delivery(std::uint32_t number, Timestamp now);
  bool arrives(const Flight& flight) const;
  void note(char kind, const Flight& flight, Timestamp now);
  Stage first_stage(Rank from, Rank to) const;
  bool inside_a_node(const Flight& flight) const;
  LinkModel path_of(const Flight& flight) const;
  static Stage next_stage(Stage stage) { return static_cast<Stage>(static_cast<int>(stage) + 1); }

  const SimConfig config_;
  std::function<Timestamp()> now_;
  std::shared_ptr<NetworkWatch> watch_;
  mutable std::mutex mutex_;  // guards what follows; not held during a delivery
  std::vector<OfRank> ranks_;
  std::vector<SendingNic> nic_out_;
  std::vector<Timestamp> nic_in_;  // of nodes: busy until
  std::vector<Timestamp> rack_out_, rack_in_;
  std::unordered_map<std::uint64_t, Pair> pairs_;  // its elements stay where they are
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_;
  std::priority_queue<Event> events_;
  std::uint64_t events_made_ = 0;
  std::uint64_t hash_ = kFnv1aStart;
};

}  // namespace grapevine
