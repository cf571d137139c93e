#include "actors/run/peer/view_member.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace grapevine {

ViewMember::ViewMember(Rank rank, std::int32_t ranks, std::int32_t present) : rank_(rank) {
  membership_.alive.assign(static_cast<std::size_t>(ranks), false);
  std::fill_n(membership_.alive.begin(), present, true);
}

bool ViewMember::sends_to(Rank to) const {
  return stage_ != Stage::draining || arriving_.count(to) == 0;
}

void ViewMember::count_sent(Rank to) {
  ++sent_to_[to];
  known_.reset();
}

void ViewMember::count_received(Rank from) {
  ++received_from_[from];
  known_.reset();
}

ViewMember::Counts ViewMember::forget(Rank rank) {
  known_.reset();
  return {std::exchange(sent_to_[rank], 0), std::exchange(received_from_[rank], 0)};
}

void ViewMember::lose(Rank rank) {
  membership_.alive[static_cast<std::size_t>(rank)] = false;
  known_.reset();
  if (joins_) ended_.insert(rank);
}

bool ViewMember::follows(const HoldForView& hold) const {
  return hold.view > number_ && std::binary_search(hold.members.begin(), hold.members.end(), rank_);
}

// A rank that returns has had its loss reported by all links before anybody is asked to hold for
// it. One that is proposed, does not arrive and has ended stays so: the report of its end has not
// reached the supervisor yet, and no second report would come.
void ViewMember::hold(HoldForView hold, bool computes) {
  const bool joins = std::exchange(joins_, false);
  for (const Rank rank : hold.members) {
    auto alive = membership_.alive[static_cast<std::size_t>(rank)];
    const bool arrives = std::binary_search(hold.arriving.begin(), hold.arriving.end(), rank);
    if (alive || !(arrives || (joins && ended_.count(rank) == 0))) continue;
    alive = true;
    arriving_.insert(rank);
  }
  ended_.clear();
  known_.reset();
  asked_ = -1;
  number_ = hold.view;
  proposed_new_ = {hold.arriving.begin(), hold.arriving.end()};
  proposed_ = std::move(hold.members);
  // Parts of a gradient may be missing if an earlier proposal has not waited for it.
  const bool is_whole = stage_ == Stage::stable || gradient_ends_;
  gradient_ends_ = hold.gradients_end && is_whole && computes;
  if (stage_ == Stage::stable) stage_ = Stage::draining;
}

bool ViewMember::end_gradient() { return std::exchange(gradient_ends_, false); }

void ViewMember::ask(const AskTraffic& question) {
  if (question.view == number_) asked_ = question.round;
}

std::optional<Traffic> ViewMember::answer() {
  if (asked_ < 0 || gradient_ends_) return std::nullopt;
  if (!known_) known_ = count();
  if (!known_) return std::nullopt;
  known_->round = std::exchange(asked_, -1);
  return known_;
}

bool ViewMember::is_proposed(Rank rank) const {
  return std::binary_search(proposed_.begin(), proposed_.end(), rank);
}

// Counts messages of all ranks: a rank that joins may have some of a view that it did not become a
// member of. Nothing while the report of the end of a rank that is no member is missing.
std::optional<Traffic> ViewMember::count() const {
  auto next = proposed_.begin();
  for (Rank rank = 0; rank < membership_.world_size(); ++rank) {
    const bool proposed = next != proposed_.end() && *next == rank;
    if (proposed) ++next;
    if (!proposed && rank != rank_ && membership_.is_alive(rank)) return std::nullopt;
  }
  const auto sum = [this](const ByRank<std::int64_t>& counts) {
    std::int64_t all = 0;
    for (const auto& [rank, count] : counts)
      if (rank != rank_ && is_proposed(rank)) all += count;
    return all;
  };
  return Traffic{number_, -1, rank_, sum(sent_to_), sum(received_from_)};
}

bool ViewMember::close() { return std::exchange(stage_, Stage::closed) == Stage::draining; }

// The role of a rank that has waited for a state may begin when the next view is proposed already:
// it takes part in that change as the others' roles do, and knows all that its own view has.
void ViewMember::install(std::int64_t view) {
  installed_ = view;
  const bool newest = view == number_;
  stage_ = newest ? Stage::stable : Stage::draining;
  if (newest) return arriving_.clear();
  for (auto rank = arriving_.begin(); rank != arriving_.end();)
    rank = proposed_new_.count(*rank) > 0 ? std::next(rank) : arriving_.erase(rank);
}

void ViewMember::join() {
  stage_ = Stage::closed;
  membership_.alive.assign(membership_.alive.size(), false);
  membership_.alive[static_cast<std::size_t>(rank_)] = true;
  joins_ = true;
  ended_.clear();
}

void ViewMember::restore(std::int64_t number, std::vector<bool> alive) {
  number_ = installed_ = number;
  membership_.alive = std::move(alive);
}

}  // namespace grapevine
