// LinkSuspects: processes to which another one has lost its link, and the end of that question.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "actors/protocol/supervisor.hpp"
#include "actors/run/supervision/run_members.hpp"
#include "messages/expected.hpp"
#include "messages/time.hpp"

namespace grapevine {

// The end of a process breaks its links, too, and the connections of the coordinator report it a
// moment later. So a process at a broken link is asked whether it lives, again and again: until it
// answers (then only the link broke), or is lost, or has answered nothing for the whole of
// `silence`. The heartbeats of its connection would detect a stopped process far later: they allow
// time for whole checkpoints. `now`: of the caller's clock. Sends nothing. Not thread-safe.
class LinkSuspects {
 public:
  explicit LinkSuspects(Duration silence = {}) : silence_(silence) {}

  // Whether the process is a suspect by this call only; the first report of a loss counts.
  bool add(std::int32_t process, LinkLost lost) {
    return suspects_.emplace(process, Suspect{std::move(lost), std::nullopt}).second;
  }
  void remove(std::int32_t process) { suspects_.erase(process); }
  bool has(std::int32_t process) const { return suspects_.count(process) > 0; }

  // The process lives, and is no suspect any more: the loss, where it was one.
  std::optional<LinkLost> on_answer(std::int32_t process);

  struct Silence {
    Rank reporter = 0;   // of the loss
    bool first = false;  // the question before this one was answered
    bool over = false;   // the process counts as lost
  };
  // A question was not answered; none where the process is no suspect. `busy`: the answer may wait
  // behind large messages, so this silence does not count.
  std::optional<Silence> on_no_answer(std::int32_t process, Timestamp now, bool busy);

 private:
  struct Suspect {
    LinkLost lost;
    std::optional<Timestamp> silent_since;  // none: no question is unanswered
  };

  Duration silence_;
  std::map<std::int32_t, Suspect> suspects_;
};

// The error (peer_down) of a link that broke while the processes at its ends live.
Error link_error(const LinkLost& lost, const RunMembers& members);

// The processes at the ends of that link but process 0, without which no run continues: first the
// one that is more likely to be the cause.
std::vector<std::int32_t> dispensable_processes(const LinkLost& lost, const RunMembers& members);

}  // namespace grapevine
