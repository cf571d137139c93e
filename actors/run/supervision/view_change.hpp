// ViewChange: the steps of a change of members. Decides, and sends nothing.
//
//   hold     no gradient and no timer reaches a role; messages still do
//   drain    until no message is on its way: all members together have received what they have
//   sent,
//            in two rounds of questions without a message in between (Mattern 1987)
//   close    every role ends what it can (Role::close)
//   install  every role is replaced by one among the members
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "actors/protocol.hpp"

namespace grapevine {

// Not thread-safe.
class ViewChange {
 public:
  enum class Next { wait, ask_later, close, install };

  // Begins, or begins anew where a member is lost meanwhile.
  void begin(std::vector<Rank> members);
  bool in_progress() const { return stage_ != Stage::none; }
  bool draining() const { return stage_ == Stage::draining; }
  // Of the view to come, else the present one; 0: that of the start.
  std::int64_t number() const { return number_; }
  // The ranks of that view, ascending.
  const std::vector<Rank>& members() const { return members_; }

  // Answers to earlier questions are ignored.
  std::int64_t begin_round();
  Next add(const Traffic& traffic);
  Next add(const ViewClosed& closed);

  // `replicates`: see RoleType. REQUIRES: Next::install.
  InstallView conclude(bool replicates);

 private:
  enum class Stage { none, draining, closing };
  bool is_member(Rank rank) const;

  Stage stage_ = Stage::none;
  std::int64_t number_ = 0, round_ = 0;
  std::vector<Rank> members_;
  std::map<Rank, Traffic> traffic_;  // of this round
  std::int64_t last_sent_ = -1;      // in the round before, where it balanced
  std::map<Rank, ViewClosed> closed_;
};

}  // namespace grapevine
