#include "tests/apps/trace/simulated_run.hpp"

#include <algorithm>
#include <cmath>

namespace grapevine::blame_test {
namespace {

constexpr double kSimulatedMs = 1e6;
constexpr double kPi = 3.14159265358979323846;

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

SimulatedRun::SimulatedRun(SimulationSettings settings) : settings_(std::move(settings)) {
  layout_.workers = settings_.workers;
  layout_.servers = settings_.exchange == Exchange::server ? 1 : 0;
  for (Rank rank = 0; rank < layout_.ranks(); ++rank) {
    layout_.process_of.push_back(rank);
    layout_.host_of.push_back(0);
  }
  ranks_.resize(static_cast<std::size_t>(layout_.ranks()));
}

// ---- chance and time ----

// A number of what it is for, so that a stall does not change the others.
double SimulatedRun::uniform(std::uint64_t what, std::uint64_t a, std::uint64_t b) const {
  const std::uint64_t bits = mix(mix(mix(mix(settings_.seed) ^ what) ^ a) ^ b);
  return (static_cast<double>(bits >> 11) + 0.5) / 9007199254740992.0;
}

std::int64_t SimulatedRun::vary(double ns, double sigma, std::uint64_t what, Rank rank,
                                std::int64_t n) const {
  const auto a = static_cast<std::uint64_t>(rank), b = static_cast<std::uint64_t>(n);
  const double u = uniform(2 * what, a, b), v = uniform(2 * what + 1, a, b);
  const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * kPi * v);
  return static_cast<std::int64_t>(ns * std::exp(sigma * normal));
}

const KnownStall* SimulatedRun::stall(CulpritKind kind, Rank rank, Step step) const {
  for (const KnownStall& known : settings_.stalls)
    if (known.kind == kind && known.rank == rank && known.step == step) return &known;
  return nullptr;
}

void SimulatedRun::at(std::int64_t time_ns, Rank rank, Action action) {
  events_.push({time_ns, ++events_made_, rank, std::move(action)});
}

void SimulatedRun::run() {
  for (Rank rank = 0; rank < settings_.workers; ++rank) {
    const double most_ms = settings_.warms_up ? 300 : 30;
    const auto late = static_cast<std::int64_t>(most_ms * kSimulatedMs *
                                                uniform(90, static_cast<std::uint64_t>(rank), 0));
    of(rank).paused_until = late;  // messages wait for its begin
    at(late, rank, [this, rank] { compute(rank); });
  }
  while (!events_.empty()) {
    Event event = events_.top();
    events_.pop();
    if (of(event.rank).paused_until > event.time_ns) {
      event.time_ns = of(event.rank).paused_until + 1;
      events_.push(std::move(event));
      continue;
    }
    now_ = event.time_ns;
    event.action();
  }
}

TraceRecord& SimulatedRun::record(EventKind kind, Rank rank) {
  TraceRecord record;
  record.time_ns = now_;
  record.kind = kind;
  record.rank = record.origin = rank;
  record.step = of(rank).step;
  records_.push_back(record);
  return records_.back();
}

// ---- the worker ----

void SimulatedRun::compute(Rank rank) {
  OfRank& own = of(rank);
  own.computing = true;
  record(EventKind::asked, rank);
  const double factor = rank == 0 ? settings_.slow_rank_factor : 1;
  std::int64_t data = vary(0.1 * kSimulatedMs, 0.3, 1, rank, own.step);
  std::int64_t time = vary(settings_.compute_ms * kSimulatedMs * factor, settings_.compute_jitter,
                           2, rank, own.step);
  if (settings_.warms_up && own.step == 0) time += vary(400 * kSimulatedMs, 0.05, 3, rank, 0);
  if (const auto* known = stall(CulpritKind::data, rank, own.step)) data += known->ns;
  if (const auto* known = stall(CulpritKind::compute, rank, own.step)) time += known->ns;
  const std::int64_t end = now_ + data + time;
  at(end + pause_in(rank, end), rank, [this, rank, data, time] {
    const bool data_first = settings_.seed % 2 == 0;
    if (data_first) record(EventKind::data_wait, rank).duration_ns = data;
    record(EventKind::produced, rank).duration_ns = time;
    if (!data_first) record(EventKind::data_wait, rank).duration_ns = data;
    of(rank).computing = false;
    on_gradient(rank);
  });
}

// The process is stopped a little after the request.
std::int64_t SimulatedRun::pause_in(Rank rank, std::int64_t end_ns) {
  const KnownStall* known = stall(CulpritKind::pause, rank, of(rank).step);
  if (known == nullptr) return 0;
  const auto a = static_cast<std::uint64_t>(rank), b = static_cast<std::uint64_t>(known->step);
  const auto after = static_cast<std::int64_t>(15 * kSimulatedMs * uniform(91, a, b));
  const std::int64_t begin = now_ + after, end = begin + known->ns;
  const auto early = static_cast<std::int64_t>(50 * kSimulatedMs * uniform(92, a, b));
  at(begin, rank, [this, rank, end] { of(rank).paused_until = end; });
  layout_.pauses.push_back({rank, {begin - early, end + 1'000'000}});
  return begin < end_ns ? known->ns : 0;
}

void SimulatedRun::on_gradient(Rank rank) {
  OfRank& own = of(rank);
  switch (settings_.exchange) {
    case Exchange::ring:
      wait(rank);
      return start_ring(rank);
    case Exchange::gossip:
    case Exchange::overlapped_gossip:
      return gossip_gradient(rank);
    case Exchange::partial:
      if (own.step + 1 <= own.operation) return end_step(rank);
      wait(rank);
      if (initiator(own.operation) == rank) begin_partial(rank);
      return;
    case Exchange::server:
      wait(rank);
      return send(rank, settings_.workers, {PayloadKind::ask, own.step, -1, -1});
  }
}

void SimulatedRun::wait(Rank rank) {
  of(rank).waits_since = now_;
  record(EventKind::wait_begin, rank);
}

void SimulatedRun::stop_waiting(Rank rank, Rank peer, std::uint64_t sequence) {
  waited_ns_ += now_ - std::exchange(of(rank).waits_since, -1);
  TraceRecord& end = record(EventKind::wait_end, rank);
  end.peer = peer;
  end.sequence = sequence;
}

void SimulatedRun::end_step(Rank rank, bool computes) {
  OfRank& own = of(rank);
  record(EventKind::step_done, rank);
  if (++own.step < settings_.steps && computes) compute(rank);
}

// ---- messages ----

void SimulatedRun::record_message(EventKind kind, Rank rank, Rank peer, std::uint64_t sequence,
                                  const Message& message) {
  TraceRecord& made = record(kind, rank);
  made.peer = peer;
  made.sequence = sequence;
  made.payload = message.payload;
  made.operation = message.operation;
  made.round = message.round;
  made.index = message.index;
}

void SimulatedRun::send(Rank from, Rank to, Message message) {
  OfRank& sender = of(from);
  const std::uint64_t sequence = ++sender.sequence;
  record_message(EventKind::sent, from, to, sequence, message);
  std::int64_t arrival =
      now_ + vary(0.2 * kSimulatedMs, 0.3, 4, from, static_cast<std::int64_t>(sequence));
  for (const KnownStall& known : settings_.stalls) {
    const bool is_it = known.kind == CulpritKind::link && known.rank == from && known.peer == to &&
                       std::max(sender.step, sender.grants) >= known.step;
    if (is_it && used_.insert(&known).second) arrival += known.ns;
  }
  auto& last = last_arrival_[{from, to}];
  arrival = last = std::max(arrival, last + 1000);
  at(arrival, to, [this, from, to, sequence, message] {
    record_message(EventKind::received, to, from, sequence, message);
    current_ = {from, sequence};
    on_message(to, from, message);
  });
}

void SimulatedRun::on_message(Rank rank, Rank from, const Message& message) {
  OfRank& own = of(rank);
  switch (message.payload) {
    case PayloadKind::share:
      return on_share(rank, message.operation);
    case PayloadKind::activate:
      if (message.operation > own.operation)
        own.early[message.operation].push_back({from, message});
      else if (message.operation == own.operation)
        begin_partial(rank);
      return;
    case PayloadKind::chunk:
      if (message.operation > own.operation || !own.running)
        own.early[message.operation].push_back({from, message});
      else
        on_chunk(rank, message);
      return;
    default:
      return on_server_message(rank, from, message);
  }
}

// ---- ring ----

void SimulatedRun::start_ring(Rank rank) {
  OfRank& own = of(rank);
  own.running = true;
  own.chunks = 0;
  send(rank, (rank + 1) % settings_.workers, {PayloadKind::chunk, own.operation, 0, rank});
  auto early = std::exchange(own.early[own.operation], {});
  own.early.erase(own.operation);
  for (const auto& [from, chunk] : early)
    if (chunk.payload == PayloadKind::chunk) on_chunk(rank, chunk);
}

void SimulatedRun::on_chunk(Rank rank, const Message& chunk) {
  OfRank& own = of(rank);
  const std::int32_t rounds = 2 * (settings_.workers - 1);
  if (chunk.round + 1 < rounds)
    send(rank, (rank + 1) % settings_.workers,
         {PayloadKind::chunk, own.operation, chunk.round + 1, chunk.index});
  if (++own.chunks == rounds) on_reduced(rank);
}

void SimulatedRun::on_reduced(Rank rank) {
  OfRank& own = of(rank);
  own.running = own.begun = false;
  ++own.operation;
  if (own.waits_since >= 0) {
    stop_waiting(rank, current_.first, current_.second);
    end_step(rank);
  }
  if (settings_.exchange != Exchange::partial) return;
  const auto early = own.early.find(own.operation);
  const bool is_begun = early != own.early.end() && !early->second.empty();
  if (is_begun) begin_partial(rank);
}

// ---- gossip ----

Rank SimulatedRun::gossip_target(Rank rank, std::int64_t round, int sign) const {
  int powers = 1;
  while ((1 << powers) < settings_.workers) ++powers;
  const int distance = 1 << (round % powers);
  return (rank + sign * distance + 2 * settings_.workers) % settings_.workers;
}

// With overlap the share of the round before is folded first.
void SimulatedRun::gossip_gradient(Rank rank) {
  OfRank& own = of(rank);
  if (settings_.exchange == Exchange::gossip) {
    send(rank, gossip_target(rank, own.step, 1), {PayloadKind::share, own.step, -1, -1});
    return own.shares.count(own.step) > 0 ? end_step(rank) : wait(rank);
  }
  if (own.step > 0 && own.shares.count(own.step - 1) == 0) return wait(rank);
  send(rank, gossip_target(rank, own.step, 1), {PayloadKind::share, own.step, -1, -1});
  end_step(rank);
}

void SimulatedRun::on_share(Rank rank, std::int64_t round) {
  OfRank& own = of(rank);
  own.shares.insert(round);
  const bool overlaps = settings_.exchange == Exchange::overlapped_gossip;
  if (own.waits_since < 0 || round != own.step - (overlaps ? 1 : 0)) return;
  stop_waiting(rank, current_.first, current_.second);
  if (overlaps)
    send(rank, gossip_target(rank, own.step, 1), {PayloadKind::share, own.step, -1, -1});
  end_step(rank);
}

// ---- partial collectives: a drawn rank begins each one, all contribute what they have ----

Rank SimulatedRun::initiator(std::int64_t operation) const {
  return static_cast<Rank>(uniform(93, 0, static_cast<std::uint64_t>(operation)) *
                           settings_.workers);
}

void SimulatedRun::begin_partial(Rank rank) {
  OfRank& own = of(rank);
  if (std::exchange(own.begun, true)) return;
  for (Rank distance = 1; distance < settings_.workers; distance *= 2)
    send(rank, (rank + distance) % settings_.workers,
         {PayloadKind::activate, own.operation, -1, -1});
  start_ring(rank);
}

// ---- server: one client has the turn ----

void SimulatedRun::serve(Rank server) {
  OfRank& own = of(server);
  if (own.holder >= 0 || own.queue.empty()) return;
  own.holder = own.queue.front();
  own.queue.pop_front();
  if (const KnownStall* known = stall(CulpritKind::pause, server, own.grants)) {
    own.paused_until = now_ + known->ns;
    layout_.pauses.push_back({server, {now_ - 20'000'000, own.paused_until + 1'000'000}});
  }
  const KnownStall* known = stall(CulpritKind::server, server, own.grants++);
  const Message grant{PayloadKind::grant, own.grants, -1, -1};
  if (known == nullptr) return send(server, own.holder, grant);
  if (settings_.server_blocks) {
    // The records of the handler stop here until it sends the grant.
    own.paused_until = now_ + known->ns;
  }
  at(now_ + known->ns, server, [this, server, grant] { send(server, of(server).holder, grant); });
}

void SimulatedRun::on_server_message(Rank rank, Rank from, const Message& message) {
  OfRank& own = of(rank);
  if (message.payload == PayloadKind::ask) {
    own.queue.push_back(from);
    serve(rank);
  } else if (message.payload == PayloadKind::commit) {
    own.holder = -1;
    send(rank, from, {PayloadKind::receipt, message.operation, -1, -1});
    serve(rank);
  } else if (message.payload == PayloadKind::grant) {
    send(rank, from, {PayloadKind::commit, message.operation, -1, -1});
    stop_waiting(rank, from, current_.second);
    end_step(rank);
  }
}

}  // namespace grapevine::blame_test
