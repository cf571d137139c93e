// RunBoard: the figures of a run in progress, as the actor Control reports them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/protocol/run.hpp"
#include "actors/record/goodput.hpp"
#include "actors/run/control/run_state.hpp"
#include "actors/run/control/run_status.hpp"
#include "actors/run/supervision/waits/wait_chain.hpp"

namespace grapevine {

// `now`: of one clock. Bounded memory, O(1) for each step. Sends nothing. Not thread-safe.
class RunBoard {
 public:
  static constexpr std::size_t kMostEvents = 50;
  // A wait that is shorter is not worth a line.
  static constexpr Duration kShownWait = std::chrono::seconds(1);

  explicit RunBoard(std::int32_t workers = 1) : workers_(workers) {}

  void on_step(const StepReport& report, Timestamp now);
  void on_figures(const RankFigures& figures, Timestamp now);
  void on_lost(Rank rank);
  void on_returned(Rank rank);
  void add(RunEvent event);

  // The number of a new question, which all of `ranks` are asked.
  std::int64_t ask(const std::set<Rank>& ranks, Timestamp now);
  // Whether it was an answer to the newest question.
  bool add(const WaitReport& report, Timestamp now);
  // Whether nobody is left to answer it.
  bool all_answered() const { return unanswered_.empty(); }

  RunStatus status(const RunState& state, Timestamp now) const;

 private:
  struct Mark {
    Timestamp at{0};
    std::int64_t steps = 0, samples = 0;
  };
  struct OfRank {
    StepReport step;
    std::int64_t steps = 0;
    std::deque<Mark> marks;  // of its newest steps
    RankFigures figures;
    std::optional<Timestamp> heard;
    std::optional<WaitReport> report;  // the answer to the newest question
  };

  RankStatus status_of(Rank rank, const RunState& state, Timestamp now) const;
  static void add_rates(RankStatus& status, const OfRank& of, Timestamp now);
  static std::int64_t destroyed_of(const Ledger& ledger);
  void add_totals(RunStatus& status, const RunState& state) const;
  std::vector<std::string> chains(const RunState& state, Timestamp now) const;
  RankWait wait_of(Rank rank, const RunState& state, Timestamp now) const;
  Duration silence_of(Rank rank, Timestamp now) const;

  std::int32_t workers_;
  std::map<Rank, OfRank> ranks_;
  Ledger total_;  // its produced and committed contributions, of all ranks
  Goodput goodput_;
  std::deque<RunEvent> events_;
  std::int64_t question_ = 0;
  Timestamp asked_{0};
  std::set<Rank> unanswered_;
};

}  // namespace grapevine
