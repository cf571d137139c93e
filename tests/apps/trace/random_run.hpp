// RandomRun: the trace files of a run that never was, of several processes with clocks of their
// own. One seed, one run. Header-only.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "messages/trace/trace_file.hpp"

namespace grapevine {

enum class RunPattern { ring, gossip, server };

struct RandomRunOptions {
  RunPattern pattern = RunPattern::ring;
  std::uint64_t seed = 0;
  std::int32_t workers = 4;
  std::int32_t processes = 2;
  Step steps = 20;
  double loss = 0;          // of messages
  bool overlap = false;     // a step ends before its exchange
  bool checkpoints = true;  // cut records
};

class RandomRun {
 public:
  explicit RandomRun(RandomRunOptions options)
      : options_(options),
        rng_(options.seed),
        ranks_(options.workers + (options.pattern == RunPattern::server ? 1 : 0)),
        records_(static_cast<std::size_t>(ranks_)),
        peers_(static_cast<std::size_t>(ranks_)) {
    for (Rank rank = 0; rank < options_.workers; ++rank) ask(rank);
    while (!agenda_.empty()) {
      auto first = agenda_.begin();
      now_ = first->first;
      const auto action = std::move(first->second);
      agenda_.erase(first);
      action();
    }
  }

  std::int32_t ranks() const { return ranks_; }
  // Of each rank, in the order of time.
  const std::vector<std::vector<TraceRecord>>& records() const { return records_; }

  // The files of all processes into a folder. Clocks differ by up to a second and drift; process 0
  // has samples of all others.
  void write(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    std::vector<Clock> clocks;
    for (std::int32_t process = 0; process < options_.processes; ++process)
      clocks.push_back(process == 0 ? Clock{} : Clock{uniform(-1e9, 1e9), uniform(-5e-5, 5e-5)});
    for (std::int32_t process = 0; process < options_.processes; ++process)
      write_process(folder, process, clocks);
  }

  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(rng_);
  }
  bool chance(double p) { return uniform(0, 1) < p; }

 private:
  struct Clock {
    double offset_ns = 0, drift = 0;
    std::int64_t of(std::int64_t ns) const {
      return ns + static_cast<std::int64_t>(offset_ns + drift * static_cast<double>(ns));
    }
  };
  struct Message {
    Rank from = 0;
    TraceRecord record;
  };
  struct PeerState {
    Step step = 0;
    std::uint64_t sequence = 0;
    bool waits = false, exchanging = false;
    Rank waits_for = -1;
    std::int64_t operation = 0;
    std::int32_t rounds = 0;  // of the ring that have arrived
    std::vector<Message> early;
    std::map<Rank, std::int64_t> arrival_ns;  // of the newest message to that rank
    Version version = 0;
  };

  PeerState& of(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void later(double delay_ns, std::function<void()> action) {
    agenda_.emplace(now_ + static_cast<std::int64_t>(delay_ns), std::move(action));
  }

  TraceRecord& record(Rank rank, EventKind kind, Rank peer = -1) {
    TraceRecord record;
    record.time_ns = now_;
    record.kind = kind;
    record.rank = rank;
    record.peer = peer;
    record.step = of(rank).step;
    record.origin = rank;
    record.origin_step = record.step;
    auto& list = records_[static_cast<std::size_t>(rank)];
    list.push_back(record);
    return list.back();
  }

  void send(Rank from, Rank to, PayloadKind payload, std::int64_t operation, std::int32_t round) {
    TraceRecord& sent = record(from, EventKind::sent, to);
    sent.sequence = ++of(from).sequence;
    sent.payload = payload;
    sent.operation = operation;
    sent.round = round;
    sent.bytes = 1000 + rng_() % 1000;
    if (chance(options_.loss)) return;
    std::int64_t& arrival = of(from).arrival_ns[to];
    arrival = std::max(arrival, now_ + static_cast<std::int64_t>(uniform(1e3, 3e6)));
    const Message message{from, sent};
    agenda_.emplace(arrival, [this, to, message] { receive(to, message); });
  }

  static void name(TraceRecord& record, const Message& message) {
    record.sequence = message.record.sequence;
    record.payload = message.record.payload;
    record.operation = message.record.operation;
    record.round = message.record.round;
    record.origin = message.record.origin;
    record.origin_step = message.record.origin_step;
  }

  // ---- the roles, roughly ----

  void ask(Rank rank) {
    if (of(rank).step >= options_.steps) return;
    record(rank, EventKind::asked);
    const std::int64_t asked = now_;
    later(uniform(1e5, 1e7), [this, rank, asked] { produced(rank, now_ - asked); });
  }

  void produced(Rank rank, std::int64_t took) {
    const auto waited = static_cast<std::int64_t>(static_cast<double>(took) * uniform(0, 0.5));
    const bool wait_first = chance(0.5);
    if (wait_first) record(rank, EventKind::data_wait).duration_ns = waited;
    record(rank, EventKind::produced).duration_ns = took - waited;
    if (!wait_first) record(rank, EventKind::data_wait).duration_ns = waited;
    if (options_.checkpoints && chance(0.05)) {
      TraceRecord& cut = record(rank, EventKind::cut);
      cut.operation = of(rank).step;
      cut.sequence = 1;
    }
    if (options_.pattern == RunPattern::ring) return start_ring(rank);
    if (options_.pattern == RunPattern::server) return commit(rank);
    share(rank);
  }

  void wait(Rank rank, Rank peer) {
    of(rank).waits = true;
    of(rank).waits_for = peer;
    record(rank, EventKind::wait_begin, peer);
  }
  void stop_waiting(Rank rank, const Message& message) {
    if (!std::exchange(of(rank).waits, false)) return;
    name(record(rank, EventKind::wait_end, message.from), message);
  }
  void step_done(Rank rank) {
    record(rank, EventKind::committed, rank);
    record(rank, EventKind::step_done);
    ++of(rank).step;
  }

  void receive(Rank rank, const Message& message) {
    name(record(rank, EventKind::received, message.from), message);
    if (rank >= options_.workers) return serve(rank, message);
    if (options_.pattern == RunPattern::ring) return chunk(rank, message);
    TraceRecord& applied = record(rank, EventKind::applied, message.from);
    name(applied, message);
    applied.staleness = std::max<Step>(0, of(rank).step - message.record.step);
    if (!of(rank).waits) return;
    stop_waiting(rank, message);
    const bool spans = options_.overlap && chance(0.5);
    if (options_.pattern == RunPattern::server || !spans) return next_step(rank);
    // A wait that lasts longer than its step.
    wait(rank, message.from);
    later(uniform(1e3, 1e5), [this, rank] {
      step_done(rank);
      later(uniform(1e3, 1e5), [this, rank] {
        of(rank).waits = false;
        record(rank, EventKind::wait_end);
        ask(rank);
      });
    });
  }
  void next_step(Rank rank) {
    step_done(rank);
    ask(rank);
  }

  void share(Rank rank) {
    const auto others = static_cast<std::uint64_t>(options_.workers - 1);
    const Rank to = static_cast<Rank>((static_cast<std::uint64_t>(rank) + 1 + rng_() % others) %
                                      static_cast<std::uint64_t>(options_.workers));
    send(rank, to, PayloadKind::share, of(rank).step, -1);
    if (chance(0.5)) return next_step(rank);
    wait(rank, chance(0.5) ? -1 : to);
    const Step step = of(rank).step;
    later(2e7, [this, rank, step] {  // a timer
      if (of(rank).step != step || !std::exchange(of(rank).waits, false)) return;
      record(rank, EventKind::wait_end);
      next_step(rank);
    });
  }

  void commit(Rank rank) {
    send(rank, options_.workers, PayloadKind::commit, of(rank).step, -1);
    wait(rank, options_.workers);
  }
  void serve(Rank rank, const Message& message) {
    TraceRecord& applied = record(rank, EventKind::applied, message.from);
    name(applied, message);
    applied.staleness = static_cast<std::int64_t>(rng_() % 5);
    applied.version = of(rank).version;
    applied.step = ++of(rank).version;
    send(rank, message.from, PayloadKind::parameters, -1, -1);
  }

  void start_ring(Rank rank) {
    PeerState& peer = of(rank);
    peer.operation = peer.step;
    peer.rounds = 0;
    peer.exchanging = true;
    send(rank, next_of(rank), PayloadKind::chunk, peer.operation, 0);
    if (options_.overlap) step_done(rank);
    wait(rank, previous_of(rank));
    for (const Message& message : std::exchange(peer.early, {})) chunk(rank, message);
  }
  Rank next_of(Rank rank) const { return (rank + 1) % options_.workers; }
  Rank previous_of(Rank rank) const { return (rank + options_.workers - 1) % options_.workers; }
  void chunk(Rank rank, const Message& message) {
    PeerState& peer = of(rank);
    if (!peer.exchanging || message.record.operation != peer.operation) {
      peer.early.push_back(message);
      return;
    }
    const std::int32_t rounds = 2 * (options_.workers - 1);
    if (++peer.rounds < rounds)
      return send(rank, next_of(rank), PayloadKind::chunk, peer.operation, peer.rounds);
    peer.exchanging = false;
    stop_waiting(rank, message);
    TraceRecord& reduced = record(rank, EventKind::reduced);
    reduced.operation = peer.operation;
    for (Rank member = 0; member < options_.workers; ++member) reduced.members.push_back(member);
    record(rank, EventKind::applied);
    if (!options_.overlap) step_done(rank);
    ask(rank);
  }

  // ---- files ----

  std::int32_t process_of(Rank rank) const { return rank % options_.processes; }

  void write_process(const std::filesystem::path& folder, std::int32_t process,
                     const std::vector<Clock>& clocks) {
    const Clock& clock = clocks[static_cast<std::size_t>(process)];
    TraceHeader header;
    header.process = process;
    header.processes = options_.processes;
    header.workers = options_.workers;
    header.servers = ranks_ - options_.workers;
    header.host = "node \"" + std::to_string(process) + "\"";
    header.boot = "boot-" + std::to_string(process);
    header.pid = 7;  // as in containers: the same everywhere
    for (Rank rank = process; rank < ranks_; rank += options_.processes)
      header.ranks.push_back(rank);
    std::string bytes = trace_magic();
    append_header(bytes, header);
    if (process == 0)
      for (std::int32_t other = 1; other < options_.processes; ++other)
        for (std::int64_t at = 0; at < now_; at += 100'000'000)
          append_clock(bytes, {other, at, clocks[static_cast<std::size_t>(other)].of(at + 50'000),
                               at + 100'000});
    for (const Rank rank : header.ranks) append_rank(bytes, rank, clock);
    append_end(bytes);
    std::ofstream(folder / trace_file_name(process, 0, 0), std::ios::binary) << bytes;
  }

  void append_rank(std::string& bytes, Rank rank, const Clock& clock) {
    const auto& all = records_[static_cast<std::size_t>(rank)];
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t count = std::min<std::size_t>(all.size() - at, 1 + rng_() % 100);
      std::vector<TraceRecord> some(all.begin() + static_cast<std::ptrdiff_t>(at),
                                    all.begin() + static_cast<std::ptrdiff_t>(at + count));
      for (TraceRecord& record : some) record.time_ns = clock.of(record.time_ns);
      append_records(bytes, some);
      at += count;
    }
  }

  RandomRunOptions options_;
  std::mt19937_64 rng_;
  std::int32_t ranks_;
  std::int64_t now_ = 0;
  std::multimap<std::int64_t, std::function<void()>> agenda_;
  std::vector<std::vector<TraceRecord>> records_;
  std::vector<PeerState> peers_;
};

}  // namespace grapevine
