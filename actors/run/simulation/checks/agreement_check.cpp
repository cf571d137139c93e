#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "actors/run/simulation/run_check.hpp"

namespace grapevine {
namespace {

class AgreementCheck final : public RunCheck {
 public:
  explicit AgreementCheck(const CheckedRun& run) : RunCheck("agreement", run) {}

  void on_returned(Timestamp at, Rank rank) override {
    returned_at_[rank] = at;
    lost_[rank].clear();
    for (auto& [other, lost] : lost_) lost.erase(rank);
  }

  void on_record(const TraceRecord& record) override {
    if (record.kind == EventKind::view) {
      if (is_outdated(record)) return;
      if (!lost_[record.rank].insert(record.peer).second)
        report(fmt::format("rank {} lost rank {} twice", record.rank, record.peer));
    } else if (record.kind == EventKind::reduced && run().compares_operations) {
      check_members(record);
    }
  }

  void on_end(const RunResult& result) override {
    if (result.error) return;
    const std::set<Rank> lost(result.lost.begin(), result.lost.end());
    for (const auto& [rank, others] : lost_) {
      if (lost.count(rank) > 0) continue;
      for (const Rank other : others)
        if (lost.count(other) == 0)
          report(fmt::format("rank {} lost rank {}, which is a member at the end", rank, other));
    }
    // Of models with infinities, equal ones too, it is not a number.
    const double distance = result.consensus_distance;
    if (run().ranks_agree && std::isfinite(distance) && distance != 0)
      report(fmt::format("the models of the ranks differ at the end, by {} of their length",
                         distance));
  }

 private:
  // A rank records its own return with its own number; and the loss of a rank may be read after its
  // return.
  bool is_outdated(const TraceRecord& record) const {
    const auto returned = returned_at_.find(record.peer);
    return record.peer == record.rank ||
           (returned != returned_at_.end() && Timestamp(record.time_ns) <= returned->second);
  }

  // Groups add up side by side: the members of one operation at two ranks are equal or have no rank
  // in common.
  void check_members(const TraceRecord& record) {
    // Numbers of operations begin anew with each view.
    if (record.view > 0) return;
    std::vector<std::vector<Rank>>& known =
        operations_[{record.operation, exchange_of(record.members)}];
    for (const std::vector<Rank>& members : known) {
      if (members == record.members) return;
      if (overlap(members, record.members))
        report(fmt::format("operation {} has the members {} at rank {}, and {} elsewhere",
                           record.operation, fmt::join(record.members, " "), record.rank,
                           fmt::join(members, " ")));
    }
    known.push_back(record.members);
    if (operations_.size() > kMostOperations) operations_.erase(operations_.begin());
  }

  // Which of the nested exchanges these ranks have taken part in: the operations of each have
  // numbers of their own. All ranks of a group of two or more take part in an exchange inside it,
  // so that one rank by itself is of the outermost one, or of a group whose other places are
  // vacant. In the same group are the mean of its ranks, and the exchange of the heads of the
  // groups in it.
  std::size_t exchange_of(const std::vector<Rank>& members) const {
    const std::vector<std::int32_t>& sizes = run().group_sizes;
    const bool alone = members.size() == 1;
    std::size_t level = 0;
    while (level < sizes.size() &&
           (alone ? has_others(members.front(), level)
                  : members.front() / sizes[level] != members.back() / sizes[level]))
      ++level;
    const std::int32_t inside = inside_of(level);
    const bool heads = std::all_of(members.begin(), members.end(),
                                   [inside](Rank rank) { return rank % inside == 0; });
    return 2 * level + (heads ? 1 : 0);
  }

  // Ranks of each group that exchanges as one rank in the groups of a level.
  std::int32_t inside_of(std::size_t level) const {
    return level == 0 ? 1 : run().group_sizes[level - 1];
  }

  // Whether the rank's group of that level had others to exchange with at the start.
  bool has_others(Rank rank, std::size_t level) const {
    const std::int32_t size = run().group_sizes[level], inside = inside_of(level);
    const Rank first = rank - rank % size;
    const Rank end = std::min(first + size, run().workers - run().vacant);
    return first / inside != (end - 1) / inside;
  }

  static bool overlap(const std::vector<Rank>& some, const std::vector<Rank>& others) {
    return std::any_of(some.begin(), some.end(), [&](Rank rank) {
      return std::binary_search(others.begin(), others.end(), rank);
    });
  }

  static constexpr std::size_t kMostOperations = 100'000;
  std::map<Rank, std::set<Rank>> lost_;
  std::map<Rank, Timestamp> returned_at_;
  // By the operation and its exchange.
  std::map<std::pair<std::int64_t, std::size_t>, std::vector<std::vector<Rank>>> operations_;
};

}  // namespace

std::unique_ptr<RunCheck> make_agreement_check(const CheckedRun& run) {
  return std::make_unique<AgreementCheck>(run);
}

}  // namespace grapevine
