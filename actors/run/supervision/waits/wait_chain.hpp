// WaitChain: which rank waits for which, from one rank to the root of its wait.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/record/wait_report.hpp"
#include "messages/time.hpp"

namespace grapevine {

// What is known of a rank: its answer, or since when none has come.
struct RankWait {
  std::optional<WaitReport> report;
  Duration silent{0};  // without a report: no answer and no step of the rank has come
  std::int32_t process = 0;
  bool finished = false;  // it has taken its last step
};

struct WaitChain {
  enum class Root {
    computes,
    reads,    // its worker waits for data
    delayed,  // by an injected delay, of the worker or of messages
    changes_members,
    receives_state,  // of another rank, which has given it: it is on its way
    no_answer,       // its process is stopped or overloaded, or the network is
    idle,            // it neither waits nor computes: a message is on its way, or lost
    finished,
    circle,  // of ranks that wait for each other
    unknown  // any of several ranks may send what the last one waits for
  };

  std::vector<Rank> ranks;  // the first one, ..., the root; the last one begins a circle
  Root root = Root::unknown;

  // Whether a process or link is the cause: a restart may help.
  bool is_lost() const {
    return root == Root::no_answer || (root == Root::idle && ranks.size() > 1);
  }
};

// Whether the rank joins, or is behind, and takes the state of another one.
bool awaits_state(const WaitReport& report);

// Where a rank waits for several others, the chain leads to the one that is furthest from an
// answer: one that does not answer, then one that computes, then one that waits. REQUIRES: `ranks`
// has `from`.
WaitChain find_wait_chain(Rank from, const std::map<Rank, RankWait>& ranks);

// "rank 3 has waited 41 s for chunk 5/6 of operation 812 from rank 2; rank 2 has computed step 812
// for 43 s". `processes`: of the run; 1: ranks are named without their processes.
std::string text_of(const WaitChain& chain, const std::map<Rank, RankWait>& ranks,
                    std::int32_t processes);

// "chunk 5/6 of operation 812 from rank 2".
std::string text_of(const Awaited& awaited);

}  // namespace grapevine
