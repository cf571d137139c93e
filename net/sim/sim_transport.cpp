#include "net/sim/sim_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "messages/check.hpp"
#include "messages/random.hpp"
#include "net/sim/scaled_size.hpp"

namespace grapevine {
namespace {

constexpr std::uint64_t kJitterStream = 0x6a6974746572;  // messages/random.hpp: one purpose each
constexpr std::uint64_t kLossStream = 0x6c6f7373;

Duration time_of(std::uint64_t bytes, double beta) {
  return from_seconds(static_cast<double>(bytes) * beta);
}

std::uint64_t mix_word(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 0x100000001b3 + (hash >> 29);
}

// The end of one fault may lie in the next one.
SimConfig in_order(SimConfig config) {
  std::stable_sort(config.link_faults.begin(), config.link_faults.end(),
                   [](const LinkFault& one, const LinkFault& other) { return one.at < other.at; });
  return config;
}

}  // namespace

SimTransport::SimTransport(SimConfig config, std::function<Timestamp()> now)
    : config_(in_order(std::move(config))),
      now_(std::move(now)),
      ranks_(static_cast<std::size_t>(config_.world_size)) {
  GRAPEVINE_CHECK(config_.world_size >= 1, "a world of ", config_.world_size);
  const Rank last = config_.world_size - 1;
  const auto nodes = static_cast<std::size_t>(config_.network.node_of(last)) + 1;
  const auto racks = static_cast<std::size_t>(config_.network.rack_of(last)) + 1;
  nic_out_.resize(nodes);
  nic_in_.resize(nodes, Timestamp{0});
  rack_out_.resize(racks, Timestamp{0});
  rack_in_.resize(racks, Timestamp{0});
}

SimTransport::OfRank& SimTransport::of(Rank rank) {
  GRAPEVINE_CHECK(is_inside(rank), "rank ", rank, " in a world of ", world_size());
  return ranks_[static_cast<std::size_t>(rank)];
}

const SimTransport::OfRank& SimTransport::of(Rank rank) const {
  GRAPEVINE_CHECK(is_inside(rank), "rank ", rank, " in a world of ", world_size());
  return ranks_[static_cast<std::size_t>(rank)];
}

SimTransport::Pair& SimTransport::pair(Rank from, Rank to) {
  const auto high = static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32;
  OfRank& sender = of(from);
  if (sender.newest_to != to) {
    sender.newest_to = to;
    sender.newest = &pairs_[high | static_cast<std::uint32_t>(to)];
  }
  return *sender.newest;
}

// ---- the contract of a transport ----

Expected<void> SimTransport::attach(Rank rank, std::shared_ptr<Inbox> inbox) {
  GRAPEVINE_CHECK(inbox != nullptr, "attach of rank ", rank, " without an inbox");
  if (!is_inside(rank))
    return bad_input(fmt::format("cannot attach rank {} to a transport of {} ranks: use 0..{}",
                                 rank, world_size(), world_size() - 1));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (of(rank).inbox != nullptr)
    return bad_input(fmt::format("rank {} is attached already: detach it first", rank));
  of(rank).inbox = std::move(inbox);
  if (!watch_) return {};
  if (of(rank).life > 0)
    watch_->on_returned(now_(), rank);
  else if (now_() > Timestamp{0})
    watch_->on_joined(now_(), rank);
  return {};
}

void SimTransport::detach(Rank rank) {
  std::shared_ptr<Inbox> leaving;  // destroyed after the lock is released
  const std::lock_guard<std::mutex> lock(mutex_);
  OfRank& own = of(rank);
  if (own.inbox == nullptr) return;
  const Timestamp now = now_();
  leaving.swap(own.inbox);
  own.ends.push_back(now);
  ++own.life;
  hash_ = mix_word(mix_word(hash_, static_cast<std::uint64_t>(now.count())),
                   static_cast<std::uint64_t>(rank) << 8 | 'd');
  if (watch_) watch_->on_detached(now, rank);
  for (Rank other = 0; other < config_.world_size; ++other) {
    if (of(other).inbox == nullptr) continue;
    const std::uint32_t slot = free_slot();
    Flight& down = flights_[slot];
    down = Flight();
    down.envelope.from = rank;
    down.envelope.to = other;
    down.is_down = true;
    down.to_life = of(other).life;
    launch(slot);
  }
}

void SimTransport::send(Envelope envelope) {
  const std::lock_guard<std::mutex> lock(mutex_);
  OfRank& from = of(envelope.from);
  const OfRank& to = of(envelope.to);
  if (from.inbox == nullptr || to.inbox == nullptr) {
    ++from.sent.messages_dropped;
    return;
  }
  const std::uint32_t slot = free_slot();
  Flight& flight = flights_[slot];
  flight.is_down = false;
  flight.bytes = size_of(envelope);
  ++from.sent.messages_sent;
  from.sent.bytes_sent += flight.bytes;
  flight.from_life = from.life;
  flight.to_life = to.life;
  if (watch_) watch_->on_sent(now_(), envelope, flight.bytes);
  flight.envelope = std::move(envelope);
  launch(slot);
}

TransportCounters SimTransport::counters(Rank rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return of(rank).sent;
}

std::uint64_t SimTransport::size_of(const Envelope& envelope) const {
  return scaled_wire_size(envelope, config_.model_scale);
}

void SimTransport::close() {
  std::vector<std::shared_ptr<Inbox>> leaving;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (OfRank& rank : ranks_) leaving.push_back(std::exchange(rank.inbox, nullptr));
  events_ = {};
  flights_.clear();
  free_.clear();
  for (SendingNic& nic : nic_out_) nic = {};
  for (OfRank& rank : ranks_) rank.held = 0;
}

// ---- the way of a message ----

double SimTransport::uniform(std::uint64_t purpose, Rank from, Rank to,
                             std::uint64_t number) const {
  const std::uint64_t stream =
      mix_seed(mix_seed(config_.seed, purpose),
               static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to));
  return static_cast<double>(mix_seed(stream, number) >> 11) * 0x1p-53;
}

Duration SimTransport::jitter(Rank from, Rank to, std::uint64_t number) const {
  if (config_.network.jitter <= 0) return Duration::zero();
  return from_seconds(-config_.network.jitter *
                      std::log1p(-uniform(kJitterStream, from, to, number)));
}

bool SimTransport::draws_loss(const Envelope& envelope, std::uint64_t number) const {
  const double loss = config_.network.loss;
  return loss > 0 && config_.may_lose && config_.may_lose(envelope) &&
         uniform(kLossStream, envelope.from, envelope.to, number) < loss;
}

Timestamp SimTransport::after_pauses(Rank rank, Timestamp time) const {
  for (bool moved = true; std::exchange(moved, false);)
    for (const RankPause& pause : config_.pauses)
      if (pause.rank == rank && pause.covers(time)) {
        time = pause.end();
        moved = true;
      }
  return time;
}

// The index of an unused entry of flights_. The caller assigns each field that launch() does not.
std::uint32_t SimTransport::free_slot() {
  if (free_.empty()) {
    flights_.emplace_back();
    return static_cast<std::uint32_t>(flights_.size() - 1);
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

// Takes a new message to its sender's NIC, in the order of sending.
void SimTransport::launch(std::uint32_t slot) {
  Flight& flight = flights_[slot];
  const Rank from = flight.envelope.from, to = flight.envelope.to;
  const Timestamp now = now_();
  Pair& own = pair(from, to);
  const std::uint64_t number = ++own.messages;
  flight.pair = &own;
  flight.lost = !flight.is_down && draws_loss(flight.envelope, number);
  const bool inside = inside_a_node(flight);
  flight.jitter = inside ? Duration{0} : jitter(from, to, number);
  if (flight.is_down) return depart(slot, now);
  const Timestamp begin = after_pauses(from, now);
  if (inside) return depart(slot, begin);
  if (begin == now && of(from).held == 0) return enter_nic(slot, now);
  ++of(from).held;
  flight.stage = Stage::pause;
  push(begin, slot);
}

bool SimTransport::inside_a_node(const Flight& flight) const {
  const NetworkModel& network = config_.network;
  return network.node_of(flight.envelope.from) == network.node_of(flight.envelope.to);
}

void SimTransport::enter_nic(std::uint32_t slot, Timestamp now) {
  const std::int32_t node = config_.network.node_of(flights_[slot].envelope.from);
  SendingNic& nic = nic_out_[static_cast<std::size_t>(node)];
  if (nic.waiting.empty() && nic.busy_until <= now) return transmit(slot, nic, now);
  if (nic.waiting.empty()) events_.push({nic.busy_until, ++events_made_, 0, node});
  nic.waiting.push_back(slot);
}

void SimTransport::transmit(std::uint32_t slot, SendingNic& nic, Timestamp now) {
  nic.busy_until = now + time_of(flights_[slot].bytes, config_.network.link.beta);
  depart(slot, now);
}

// Sends the messages that wait. Those of a rank that has died since are discarded.
void SimTransport::send_next(std::int32_t node, Timestamp now) {
  SendingNic& nic = nic_out_[static_cast<std::size_t>(node)];
  while (!nic.waiting.empty() && nic.busy_until <= now) {
    const std::uint32_t slot = nic.waiting.front();
    nic.waiting.pop_front();
    if (is_unsent(flights_[slot]))
      discard(slot, now);
    else
      transmit(slot, nic, now);
  }
  if (!nic.waiting.empty()) events_.push({nic.busy_until, ++events_made_, 0, node});
}

// Whether the sender of a waiting message is dead.
bool SimTransport::is_unsent(const Flight& flight) const {
  return of(flight.envelope.from).life != flight.from_life;
}

void SimTransport::discard(std::uint32_t slot, Timestamp now) {
  note('x', flights_[slot], now);
  flights_[slot].envelope.payload = {};
  free_.push_back(slot);
}

// The first bit leaves the sender at `begin`.
void SimTransport::depart(std::uint32_t slot, Timestamp begin) {
  Flight& flight = flights_[slot];
  const NetworkModel& network = config_.network;
  const LinkModel& link = inside_a_node(flight) ? network.inside : network.link;
  flight.left = begin + time_of(flight.bytes, link.beta);
  const Duration way = from_seconds(link.alpha) + flight.jitter;
  flight.not_before = flight.left + way;
  Timestamp& entered = flight.pair->entered;
  entered = std::max(entered, begin + way);
  flight.stage = first_stage(flight.envelope.from, flight.envelope.to);
  push(entered, slot);
}

// Links without faults change nothing: messages of a pair enter the network in their order.
SimTransport::Stage SimTransport::first_stage(Rank from, Rank to) const {
  const NetworkModel& network = config_.network;
  if (network.rack_of(from) != network.rack_of(to)) return Stage::uplink;
  return config_.link_faults.empty() ? Stage::nic : Stage::link;
}

void SimTransport::push(Timestamp at, std::uint32_t flight) {
  events_.push({at, ++events_made_, flight, kNoNode});
}

// One after the other; the first bit leaves at the returned time.
Timestamp SimTransport::pass_resource(Flight& flight, Timestamp now, Timestamp& busy_until,
                                      const LinkModel& link) {
  const Timestamp begin = std::max(now, busy_until);
  const Duration length = time_of(flight.bytes, link.beta), way = from_seconds(link.alpha);
  busy_until = begin + length;
  flight.not_before = std::max(flight.not_before, busy_until) + way;
  return begin + way;
}

// The whole way of a message without contention: all latencies, and the rate of its slowest part.
LinkModel SimTransport::path_of(const Flight& flight) const {
  const NetworkModel& network = config_.network;
  if (inside_a_node(flight)) return network.inside;
  if (network.rack_of(flight.envelope.from) == network.rack_of(flight.envelope.to))
    return network.link;
  return {network.link.alpha + network.uplink.alpha,
          std::max(network.link.beta, network.uplink.beta)};
}

// When the message has passed the faults of the link between the two ranks.
Timestamp SimTransport::pass_link(Flight& flight, Timestamp now) {
  const Envelope& message = flight.envelope;
  Timestamp time = now;
  for (const LinkFault& fault : config_.link_faults) {
    const bool here = (fault.a == message.from && fault.b == message.to) ||
                      (fault.b == message.from && fault.a == message.to);
    if (!here || !fault.covers(time)) continue;
    if (fault.kind == LinkFault::Kind::partition) {
      flight.not_before += fault.at + fault.length - time;
      time = fault.at + fault.length;
      continue;
    }
    const LinkModel path = path_of(flight);
    const LinkModel more{path.alpha * (fault.factor - 1), path.beta * fault.factor};
    time = pass_resource(flight, time, flight.pair->slow_until, more);
  }
  return time;
}

void SimTransport::pass(std::uint32_t number, Timestamp now) {
  Flight& flight = flights_[number];
  const NetworkModel& network = config_.network;
  const Rank from = flight.envelope.from, to = flight.envelope.to;
  Timestamp next = now;
  switch (flight.stage) {
    case Stage::pause:
      --of(from).held;
      return is_unsent(flight) ? discard(number, now) : enter_nic(number, now);
    case Stage::uplink:
      next = pass_resource(flight, now, rack_out_[static_cast<std::size_t>(network.rack_of(from))],
                           network.uplink);
      break;
    case Stage::downlink:
      next = pass_resource(flight, now, rack_in_[static_cast<std::size_t>(network.rack_of(to))],
                           {0, network.uplink.beta});
      break;
    case Stage::link: {
      // No message overtakes an earlier one, also not one that was sent while the link was slow.
      Timestamp& passed = flight.pair->passed;
      next = passed = std::max(passed, pass_link(flight, now));
      break;
    }
    case Stage::nic:
      if (!inside_a_node(flight))
        pass_resource(flight, now, nic_in_[static_cast<std::size_t>(network.node_of(to))],
                      {0, network.link.beta});
      return schedule_delivery(number, now);
    case Stage::delivery:
      return;
  }
  flight.stage = next_stage(flight.stage);
  push(next, number);
}

void SimTransport::schedule_delivery(std::uint32_t number, Timestamp now) {
  Flight& flight = flights_[number];
  const Rank to = flight.envelope.to;
  Pair& own = *flight.pair;
  const Timestamp arrival = after_pauses(to, std::max(now, flight.not_before));
  own.delivered = std::max(own.delivered, arrival);
  flight.stage = Stage::delivery;
  push(own.delivered, number);
}

// ---- deliveries ----

std::optional<Timestamp> SimTransport::next_at() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (events_.empty()) return std::nullopt;
  return events_.top().at;
}

// Whether its sender had sent it and its receiver lives.
bool SimTransport::arrives(const Flight& flight) const {
  const OfRank& to = of(flight.envelope.to);
  if (to.inbox == nullptr || to.life != flight.to_life) return false;
  // A rank returns only after every rank has received the report of its loss, which follows the
  // last message of its earlier life.
  const OfRank& from = of(flight.envelope.from);
  const bool returned = from.inbox != nullptr;
  if (flight.is_down) return !returned;
  return from.life == flight.from_life || (!returned && from.ends[flight.from_life] >= flight.left);
}

void SimTransport::note(char kind, const Flight& flight, Timestamp now) {
  const Envelope& message = flight.envelope;
  hash_ = mix_word(hash_, static_cast<std::uint64_t>(now.count()));
  hash_ = mix_word(hash_, static_cast<std::uint64_t>(message.from) << 32 |
                              static_cast<std::uint32_t>(message.to));
  hash_ = mix_word(hash_, message.stamp.sequence << 16 |
                              static_cast<std::uint64_t>(message.payload.index()) << 8 |
                              static_cast<std::uint64_t>(kind));
}

void SimTransport::run_next() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (events_.empty()) return;
  const Event event = events_.top();
  events_.pop();
  if (event.node != kNoNode) return send_next(event.node, event.at);
  Flight& flight = flights_[event.flight];
  if (flight.stage != Stage::delivery) return pass(event.flight, event.at);
  if (!arrives(flight)) return discard(event.flight, event.at);
  free_.push_back(event.flight);
  const bool is_down = flight.is_down, lost = flight.lost;
  note(is_down ? 'D' : lost ? 'l' : 'm', flight, event.at);
  if (watch_ && lost) watch_->on_lost(event.at, flight.envelope);
  if (watch_ && !lost && !is_down) watch_->on_delivered(event.at, flight.envelope);
  const std::shared_ptr<Inbox> inbox = of(flight.envelope.to).inbox;
  Envelope envelope = std::move(flight.envelope);
  lock.unlock();
  if (is_down) return inbox->peer_down(envelope.from, "");
  if (lost) return inbox->lost(envelope.from);
  inbox->deliver(std::move(envelope));
}

std::uint64_t SimTransport::hash() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return hash_;
}

}  // namespace grapevine
