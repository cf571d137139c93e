// RunStatus: what a running job answers to the question how it does.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/record/ledger.hpp"
#include "actors/record/wait_report.hpp"
#include "actors/run/control/live_settings.hpp"
#include "messages/ids.hpp"

namespace grapevine {

inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

// Of one rank. Times in seconds.
struct RankStatus {
  Rank rank = 0;
  std::int32_t process = 0;
  bool serves = false;     // a parameter server: it takes no steps
  bool lost = false;       // the others continue without it
  bool vacant = false;     // and it has not been there yet
  bool finished = false;   // it has taken its last step
  std::int64_t steps = 0;  // that were reported, also before this run
  double epoch = kNotMeasured;
  double steps_per_s = kNotMeasured, samples_per_s = kNotMeasured;          // of its newest steps
  double loss = kNotMeasured, lr = kNotMeasured, staleness = kNotMeasured;  // of its newest step
  double step_s = kNotMeasured, exchange_s = kNotMeasured;                  // of its newest step
  bool answers = false;            // to the question what it waits for
  double silent_s = 0;             // without any message of it, where it does not answer
  std::optional<WaitReport> wait;  // its answer
  Ledger ledger;
  std::map<Rank, std::uint64_t> sent_bytes;  // by receiving rank, in this run
  std::map<Rank, std::int64_t> waited_ns;    // by the rank whose message ended the wait
};

struct RunEvent {
  std::string kind;  // warning | checkpoint | validation | lost | returned | joined | change
  std::string text;  // one line
  double time_s = 0;
};

struct RunStatus {
  std::string stage;  // joining | running | draining | closing
  bool stopping = false;
  double time_s = 0;  // since the start of this run
  std::int32_t workers = 1, servers = 0, processes = 1;
  std::int64_t view = 1;              // the members' number of changes, from 1
  bool changes_members = false;       // such a change is in progress
  std::int64_t steps = 0;             // of each rank, at the end
  double epochs = 0;                  // of each rank, at the end
  double epochs_done = kNotMeasured;  // of the slowest rank
  double samples_per_s = 0;
  double goodput = kNotMeasured;
  std::int64_t destroyed = 0;  // contributions, with lost ranks
  std::string checkpoint;      // the newest one written, or empty
  bool writes_checkpoint = false;
  LiveSettings settings;  // that have changed since the start
  std::vector<RankStatus> ranks;
  // The sum over servers that the present wiring lacks, and over former lives of ranks that have
  // returned.
  Ledger rested;
  // Bytes that wait to be sent, by process; -1: no rank of it has answered.
  std::vector<std::int64_t> queued_bytes;
  std::vector<std::string> waits;  // chains of waits that last, for people
  std::vector<RunEvent> events;    // the newest ones, oldest first
};

}  // namespace grapevine
