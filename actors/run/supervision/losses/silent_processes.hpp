// SilentProcesses: processes that answer nothing while a run waits for them.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "actors/run/supervision/waits/usual_pace.hpp"
#include "messages/time.hpp"

namespace grapevine {

// A stopped process keeps its connections, and the heartbeats of transports allow it a minute. So
// while a rank waits longer than usual, every process is asked whether it lives. Each word of a
// process counts: a step, an answer. One that says nothing for kFactor times its usual pace, which
// is learned from its steps, counts as lost; never before `least`, and always after `most`. For
// half of that time a question has to be open: a process that has taken its last step has nothing
// to say. And the caller has to look all the while: it may have been suspended, and the words of
// the others then wait to be read. `now`: of the caller's clock. Sends nothing. Not thread-safe.
class SilentProcesses {
 public:
  static constexpr int kFactor = UsualPace::kUnusualFactor;

  // The usual time between two words of a process; none: not known, and `most` counts.
  using PaceOf = std::function<std::optional<Duration>(std::int32_t process)>;

  SilentProcesses() = default;  // no process is ever lost
  // REQUIRES: 0 < least <= most.
  SilentProcesses(Duration least, Duration most) : least_(least), most_(most) {}

  bool watches() const { return least_ > Duration::zero(); }
  // A wait without a step that is worth a question: half of `least`.
  Duration patience() const { return least_ / 2; }

  // A word of the process, which it is the first one of where it begins or returns.
  void hear(std::int32_t process, Timestamp now);
  void remove(std::int32_t process) { processes_.erase(process); }
  // Nobody waits: open questions do not count.
  void relax();

  // The longest silence of a process with that usual time between two messages.
  Duration limit(std::optional<Duration> usual) const;

  // The processes without an open question: they are to be asked now. While somebody waits, the
  // caller asks several times in patience(); after a longer gap all are asked again.
  std::vector<std::int32_t> ask(Timestamp now);

  struct Silence {
    std::int32_t process = 0;
    Duration length{0};  // since its last word
  };
  // Those that count as lost, the longest silence first.
  std::vector<Silence> find(Timestamp now, const PaceOf& usual) const;

 private:
  struct Process {
    Timestamp heard{0};
    std::optional<Timestamp> asked;  // of the open question
  };

  Duration least_{0}, most_{0};
  std::map<std::int32_t, Process> processes_;
  Timestamp looked_{0};  // the newest ask()
};

}  // namespace grapevine
