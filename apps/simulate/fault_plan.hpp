// The faults of a simulated run: their text, and seeded ones.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/run/runtime.hpp"
#include "messages/expected.hpp"
#include "net/sim/link_faults.hpp"

namespace grapevine {

struct Fault {
  enum class Kind { crash, restart, join, pause, partition, slow, skew };
  Kind kind = Kind::crash;
  Rank rank = 0;
  Rank peer = -1;     // of partition and slow
  double factor = 1;  // of slow
  Timestamp at{0};
  Duration length{0};  // of all but crash, restart and join; skew: how far the clock is ahead
};

// What may go wrong in a run.
struct FaultBounds {
  std::int32_t ranks = 1;  // servers included
  std::int32_t workers = 1;
  std::int32_t crashes = 0;  // at most; 0: the wiring does not survive one
  bool restarts = false;     // lost ranks may return, and others join
  Duration expected{0};      // length of the run without faults; random faults are inside it
  std::uint64_t seed = 0;    // of random faults

  // For the text of a plan that a run has accepted.
  static FaultBounds of_known_plan();
};

// Comma-separated: crash=R@T, restart=R@T (after a crash of R), join=R@T (until then the place of
// R, one of the last ranks that train, is vacant), pause=R@T+D, partition=R1-R2@T+D,
// slow=R1-R2xF@T+D, skew=R:D (D may be negative), random=N. T and D are seconds, or like 300ms.
// random=N draws N faults, once all others are known: in whichever order they stand, no rank that
// another term crashes is drawn for a crash. F is at most 1e6. Errors (bad_input) quote the term
// and give the expected form.
Expected<std::vector<Fault>> parse_faults(const std::string& spec, const FaultBounds& bounds);
// A spec of exactly these.
std::string faults_text(const std::vector<Fault>& faults);

// How many of `workers` begin the run: all but those that join. Errors (bad_input): those are not
// the last ones, or all.
Expected<std::int32_t> initial_workers_of(const std::vector<Fault>& faults, std::int32_t workers);
// The terms of a spec that say join; it need not be valid.
std::int32_t count_joins(const std::string& spec);

// Without restarts that no crash precedes, in the order given.
std::vector<Fault> without_orphans(std::vector<Fault> faults);

// What the runtime and the network take; those that join are among the returns.
std::vector<Death> deaths_of(const std::vector<Fault>& faults);
std::vector<Return> returns_of(const std::vector<Fault>& faults);
std::vector<RankPause> pauses_of(const std::vector<Fault>& faults);
std::vector<LinkFault> link_faults_of(const std::vector<Fault>& faults);
// By rank: of its clock.
std::map<Rank, Duration> skews_of(const std::vector<Fault>& faults);

}  // namespace grapevine
