// WaitWatch: finds waits that are longer than usual, and what they are for.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/run/supervision/waits/usual_pace.hpp"
#include "actors/run/supervision/waits/wait_chain.hpp"
#include "messages/time.hpp"

namespace grapevine {

struct WaitLimits {
  Duration floor{std::chrono::seconds(15)};  // shorter waits are never unusual
  // Before a rank's first step: its usual pace is not known.
  Duration first{std::chrono::seconds(300)};
  std::optional<Duration> abort;  // an unusual wait that lasts so long ends the run; none: no wait
};

// A wait is unusual once its rank has taken no step for kFactor times its usual pace. Then all
// ranks are asked what they wait for; the answers say which chain of waits leads to which root. A
// wait whose root is an injected delay is none. A rank that joins has the pace of the others until
// it has the state of training; its first step may take longer, as at the start of a run. Neither
// that step nor one during which a rank was lost says what is usual: else each silence of a stopped
// process, for which the others stood still, would lengthen the next one. A wait ends the run only
// after the last part of a state has come, and all of limits.abort: other ranks may have waited for
// the state. `now`: of the caller's clock. Sends nothing. Not thread-safe.
class WaitWatch {
 public:
  static constexpr int kFactor = UsualPace::kUnusualFactor;
  // A rank without an answer for longer does not answer.
  static constexpr Duration kAnswerTime = std::chrono::milliseconds(1500);

  explicit WaitWatch(WaitLimits limits = {});

  // All ranks begin to train. `process_of`: by rank, servers included; the first `workers` of them
  // take steps.
  void begin(const std::vector<std::int32_t>& process_of, std::int32_t workers, Timestamp now);
  void on_step(Rank rank, Timestamp now);
  // The rank takes no further step, and answers still.
  void finish(Rank rank);
  // The rank is lost.
  void remove(Rank rank);
  // It returns, or it is a server that comes.
  void bring_back(Rank rank, std::int32_t process, Timestamp now);
  // All waits begin anew, for example of other members. Finished ranks that remain take steps
  // again.
  void restart(Timestamp now);

  // How often the caller looks.
  Duration interval() const;
  // The number of a new question, if a wait is unusual.
  std::optional<std::int64_t> ask(Timestamp now);
  void add(const WaitReport& report, Timestamp now);
  // The newest part of a state that came to a rank, as far as the answers say, or the beginning of
  // its wait for it; 0: no rank has waited for one.
  Timestamp state_at() const { return state_at_; }

  struct Finding {
    std::string text;               // the chain of waits
    bool ends = false;              // the run is to end, with that text
    bool is_lost = false;           // a process or link is the cause,
    std::int32_t unreachable = -1;  // this process
  };
  // What the answers to the newest question say; nothing where that was said already. Each finding
  // is told again when its wait has become twice as long.
  std::optional<Finding> look(Timestamp now);

  // The text of the newest finding, if it is not older than `since`; else empty.
  std::string told_since(Timestamp since) const {
    return told_ && told_->at >= since ? told_->text : "";
  }

  // Whether a rank of any process but `except` has taken no step for kFactor times its usual pace,
  // and at least `floor`.
  bool is_held_up(Timestamp now, Duration floor, std::int32_t except = -1) const;
  // The usual time between two steps of a rank of the process, of the slowest one; of any process
  // where those of this one have taken none; none before the first step.
  std::optional<Duration> pace_of_process(std::int32_t process) const;

  // For how long a run may be without any step: `timeout`, or longer where that is its usual pace.
  Duration limit(Duration timeout, Duration first_timeout) const;

 private:
  struct OfRank {
    std::int32_t process = 0;
    bool trains = true;
    bool finished = false;
    bool joins = false;         // it has come while the others train, and has taken no step
    bool steps = false;         // it has taken one
    bool lost_another = false;  // since its newest step, which may have waited for that one
    Timestamp step{0};          // its newest one, or the start
    Timestamp heard{0};         // its newest step or answer
    Timestamp asked{0};         // since the oldest question without an answer
    bool awaits_answer = false;
    std::optional<WaitReport> report;  // the answer to the newest question
    Timestamp reported_at{0};
  };
  struct Told {
    Rank root = -1;
    WaitChain::Root kind = WaitChain::Root::unknown;
    Duration length{0};
    std::string text;
    Timestamp at{0};
  };

  Duration usual_limit(Rank rank, Duration floor) const;
  bool is_unusual(Rank rank, const OfRank& of, Timestamp now, Duration floor) const;
  bool is_unusual(Rank rank, const OfRank& of, Timestamp now) const {
    return is_unusual(rank, of, now, limits_.floor);
  }
  std::map<Rank, RankWait> known(Timestamp now) const;
  bool all_known(Timestamp now) const;
  bool begins_late(const OfRank& of, const WaitChain& chain, Timestamp now) const;

  WaitLimits limits_;
  UsualPace pace_;
  std::int32_t workers_ = 0;
  std::map<Rank, OfRank> ranks_;
  std::int64_t question_ = 0;
  Timestamp state_at_{0};  // see state_at()
  std::optional<Told> told_;
};

}  // namespace grapevine
