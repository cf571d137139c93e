// Blame: which rank, link or server made which ranks wait, and when (docs/tracing.md, "Blame").
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "apps/trace/causes.hpp"
#include "apps/trace/run_layout.hpp"
#include "apps/trace/training_clock.hpp"
#include "apps/trace/usual_times.hpp"
#include "messages/trace/merged_trace.hpp"

namespace grapevine {

struct BlameQuestion {
  enum class About { all, slowest, step };
  About about = About::all;
  Step step = 0;                       // of About::step
  std::int64_t least_ns = 50'000'000;  // an excess that is shorter is nobody's fault
  std::size_t most_steps = 10;         // of About::slowest
};

enum class CulpritKind : std::uint8_t { compute, link, data, server, pause, loss };
const char* name_of(CulpritKind kind);

// A part of a path (Causes), beside what is usual.
struct BlamedSpan {
  Span span;
  std::int64_t usual_ns = 0;
  std::int64_t inside_ns = 0;   // of the span, inside the wait or the step
  std::int64_t unusual_ns = 0;  // of that, more than usual; without pauses
  std::int64_t paused_ns = 0;   // of inside_ns
  Rank paused_rank = -1;        // whose process was paused
};

// One wait of a rank, from its end backwards. Paths that are too long lack spans of the middle.
struct BlamedWait {
  Rank rank = 0;
  Step step = -1;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::vector<BlamedSpan> path;
  std::size_t left_out = 0;  // spans of the path

  std::int64_t length_ns() const { return end_ns - begin_ns; }
};

struct Culprit {
  CulpritKind kind = CulpritKind::compute;
  Rank rank = 0;               // of a link: the sender; of a loss: the lost one
  Rank peer = -1;              // of a link: the receiver
  std::int64_t waited_ns = 0;  // the time that ranks waited because of it, all ranks together
  std::int64_t own_ns = 0;     // the time that its own gradients were late
  double share = 0;            // of all time that ranks waited
  bool always = false;         // slow all the time, and not only in single stalls
  std::int64_t stalls = 0;     // how often
  std::int64_t usual_ns = 0;  // of what was slow: its own usual time, where `always` that of others
  BlamedWait worst;           // the longest wait because of it; none: length 0
};

// One step of one rank.
struct BlamedStep {
  Rank rank = 0;
  Step step = 0;
  std::int64_t begin_ns = 0, end_ns = 0, usual_ns = 0;
  std::int64_t waited_ns = 0;
  std::vector<BlamedSpan> own;    // the gradients of the rank
  std::vector<BlamedWait> waits;  // longest first, the longest ones only

  std::int64_t length_ns() const { return end_ns - begin_ns; }
};

struct BlameReport {
  BlameQuestion question;
  std::int64_t run_ns = 0;     // from the first record to the last, without the time between runs
  std::int64_t waited_ns = 0;  // by all ranks together
  std::int64_t waits = 0;
  Step last_step = -1;            // that a rank has taken; -1: none
  std::vector<Culprit> culprits;  // the greatest first
  std::vector<BlamedStep> steps;  // the slowest first; of About::step: by rank
  std::vector<std::string> notes;
  std::vector<std::string> missing;  // MergedTrace::missing()
};

// Two passes over the records in causal order: learn() all, then judge() all, then report(). Memory
// is bounded by ranks, links and the question. Not thread-safe.
class Blame {
 public:
  Blame(RunLayout layout, BlameQuestion question);
  Blame(const Blame&) = delete;
  Blame& operator=(const Blame&) = delete;

  void learn(const TraceRecord& record);
  void judge(const TraceRecord& record);
  // REQUIRES: once, after the last record.
  BlameReport report();

 private:
  // One stall, which many waits may have met.
  struct Stall {
    std::int64_t begin_ns = 0, waited_ns = 0, own_ns = 0;
    std::map<Rank, std::int64_t> waited_by;  // of these ns, by the rank that waits
  };
  struct Account {
    std::vector<Stall> stalls;                             // the newest ones
    std::int64_t waited_ns = 0, own_ns = 0;                // of stalls that counted
    std::int64_t always_waited_ns = 0, always_own_ns = 0;  // of what is always slow
    std::int64_t count = 0;
    std::int64_t usual_ns = 0, ordinary_ns = 0;
    BlamedWait worst;
    std::int64_t worst_ns = 0;
  };
  struct OfRank {
    std::int64_t wait_begin_ns = -1;  // -1: it does not wait
    std::int64_t step_begin_ns = -1, asked_ns = -1;
    BlamedStep step;
  };
  // The time of which a cause is looked for.
  struct Window {
    std::int64_t begin_ns = 0, end_ns = 0;
    bool is_wait = false;  // else a gradient of the rank itself
    // The time without a cause so far; the second: that which a stall may have caused.
    std::int64_t left_ns = 0, left_of_stalls_ns = 0;
    Rank rank = -1;  // that waits

    void take(std::int64_t ns);
  };
  using CulpritKey = std::tuple<CulpritKind, Rank, Rank>;

  OfRank& of(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  void start_second_pass();
  void follow_step(const TraceRecord& record);
  void end_wait(const TraceRecord& record);
  void end_step(const TraceRecord& record);
  void note_own_gradient(const Span& span);

  void judge_wait(BlamedWait& wait);
  BlamedSpan charge(const Span& span, Window& whole);
  std::int64_t left_of_stall(const CulpritKey& key, std::int64_t begin_ns, std::int64_t ns,
                             const Window& window) const;
  void charge_stall(CulpritKey key, std::int64_t begin_ns, std::int64_t ns, const Window& window);
  void charge_active(const Span& span, const Excess& excess, Window& window, BlamedSpan& blamed);
  std::int64_t charge_pauses(const Span& span, Window& window, BlamedSpan& blamed);
  void close_stall(Account& account, const Stall& stall) const;
  void keep_worst(const BlamedWait& wait);
  void keep_step(BlamedStep step);
  std::vector<Culprit> culprits();

  const RunLayout layout_;
  const BlameQuestion question_;
  std::vector<std::vector<Pause>> pauses_;  // by rank, of its process, in the order of time
  std::optional<Causes> causes_;            // of this pass
  UsualTimes usual_;
  bool in_second_pass_ = false;
  std::vector<OfRank> ranks_;
  std::map<CulpritKey, Account> accounts_;
  std::map<CulpritKey, std::int64_t> charged_;  // by the wait that is being judged
  std::vector<Span> path_;                      // scratch
  std::vector<BlamedStep> steps_;
  TrainingClock clock_;
  std::int64_t first_ns_ = -1, last_ns_ = 0;  // of training
  std::int64_t waited_ns_ = 0, waits_ = 0;
  Step last_step_ = -1;
};

// Reads `trace` twice, from its first record.
BlameReport blame(MergedTrace& trace, const BlameQuestion& question);

}  // namespace grapevine
