// RankFigures: what one rank has done so far, for people who watch the run; LiveFigures counts it.
#pragma once
#include <cstdint>
#include <map>

#include "actors/record/by_rank.hpp"
#include "actors/record/ledger.hpp"
#include "messages/ids.hpp"
#include "messages/time.hpp"

namespace grapevine {

// All figures only grow, but for the pending contributions of the ledger.
struct RankFigures {
  // The rank that a wait is attributed to where no message ended it: the rank's own gradient, a
  // timer or the loss of a rank did.
  static constexpr Rank kNobody = -1;

  Rank rank = 0;
  std::int64_t view = 0;  // changes of the membership that the rank saw in this run
  Ledger ledger;          // of the whole training
  // Since the start of this run. Waits that have ended, by the rank whose message ended them.
  std::map<Rank, std::int64_t> waited_ns;
  std::map<Rank, std::uint64_t> sent_bytes;  // headers and payload, by receiving rank
};

// One rank's waits and bytes by rank. Counting allocates once for each other rank. Not thread-safe.
class LiveFigures {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);  // between two reports, at least

  explicit LiveFigures(Rank rank = 0) : rank_(rank) {}

  // REQUIRES: a rank of the run; for waits also kNobody.
  void add_sent(Rank to, std::uint64_t bytes) { sent_bytes_[to] += bytes; }
  void add_wait(Rank awaited, Duration time) { waited_[awaited] += time; }
  void add_view() { ++view_; }

  // Whether the interval since the last report, or since time 0, is over: then the next one begins.
  bool due(Timestamp now);
  // Ranks without a wait, or without bytes, are left out.
  RankFigures with(const Ledger& ledger) const;

 private:
  Rank rank_;
  std::int64_t view_ = 0;
  ByRank<Duration> waited_;
  ByRank<std::uint64_t> sent_bytes_;
  Timestamp reported_{0};
};

}  // namespace grapevine
