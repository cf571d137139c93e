// ViewMember: one rank's part in the changes of members that a ViewChange leads. Decides, and sends
// nothing: which messages reach the role, and what the rank answers.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "actors/protocol/view.hpp"
#include "actors/record/by_rank.hpp"
#include "algorithms/env.hpp"

namespace grapevine {

// Not thread-safe.
class ViewMember {
 public:
  struct Counts {
    std::int64_t sent = 0, received = 0;
  };

  ViewMember() = default;
  // Of so many ranks, of which the first `present` are alive.
  ViewMember(Rank rank, std::int32_t ranks, std::int32_t present);

  // The membership of the role: a rank is alive until its end is reported here.
  const Membership& membership() const { return membership_; }
  // The newest view that was proposed, and that of the role; 0: of the start.
  std::int64_t number() const { return number_; }
  std::int64_t installed() const { return installed_; }
  // No timer reaches the role, and nothing is computed for it.
  bool is_holding() const { return stage_ != Stage::stable; }
  // Whether the gradient that is being computed is of use to it.
  bool takes_gradient() const { return !is_holding() || gradient_ends_; }
  // The role of the view before is closed: messages wait for the one to come.
  bool is_closed() const { return stage_ == Stage::closed; }

  // ---- messages, and ranks that end

  // False for a rank that joins, while the old role drains: for that role the rank is lost.
  bool sends_to(Rank to) const;
  void count_sent(Rank to);
  void count_received(Rank from);
  // Removes the messages of that rank, which cannot balance any more, from later answers.
  Counts forget(Rank rank);
  // That rank has ended, or takes no part any more.
  void lose(Rank rank);

  // ---- a change, in this order

  // Whether it is newer than what was proposed, and this rank is among its members.
  bool follows(const HoldForView& hold) const;
  // `computes`: whether a gradient is being computed for the role. REQUIRES: follows(hold).
  void hold(HoldForView hold, bool computes);
  // It has reached the role. True: a question may have an answer now.
  bool end_gradient();
  void ask(const AskTraffic& question);
  // The answer to the newest question: once the end of every rank that is no member has been
  // reported here, whose messages have arrived then, and the gradient that this rank computes has
  // reached the role.
  std::optional<Traffic> answer();
  // Whether that is the view in progress.
  bool closes(const CloseView& close) const { return close.view == number_ && is_holding(); }
  bool takes(const ViewCounts& counts) const { return counts.view == number_ && is_holding(); }
  bool installs(const InstallView& view) const { return view.view == number_ && is_holding(); }
  // False: its role is closed already, for a view that was never installed. REQUIRES: closes().
  bool close();
  // The role is of that view, which another one may follow already. REQUIRES: is_closed().
  void install(std::int64_t view);

  // ---- other ways to a role, and from it

  // A rank that begins with its first view learns the other ranks from it. A rank whose end is
  // reported in between is not among them.
  void join();
  // Until its next view.
  void suspend() { stage_ = Stage::closed; }
  // From a checkpoint of that view. `alive`: at least as many as ranks.
  void restore(std::int64_t number, std::vector<bool> alive);

 private:
  // draining: messages still reach the role.
  enum class Stage { stable, draining, closed };
  friend struct ViewFingerprint;  // of a test that visits all states

  bool is_proposed(Rank rank) const;
  std::optional<Traffic> count() const;

  Rank rank_ = 0;
  Membership membership_;
  std::int64_t number_ = 0, installed_ = 0;
  std::vector<Rank> proposed_;  // members of the view to come, ascending
  Stage stage_ = Stage::stable;
  bool gradient_ends_ = false;    // draining: the gradient that is computed reaches the role
  std::set<Rank> arriving_;       // of those that are proposed, that the role does not know
  std::set<Rank> proposed_new_;   // of those that are proposed, that the last view has not
  bool joins_ = false;            // until its first view is proposed
  std::set<Rank> ended_;          // ranks whose end was reported in that time
  std::int64_t asked_ = -1;       // round of a question that is not answered; -1: none
  std::optional<Traffic> known_;  // the last answer, unless a message or a loss has come since
  ByRank<std::int64_t> sent_to_, received_from_;  // messages since the start of this run
};

}  // namespace grapevine
