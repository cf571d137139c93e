// ServedClients: the clients of a server: those that are present, and the newest commit of each. A
// part of the server role.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "algorithms/archive.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role.
class ServedClients {
 public:
  // `ranks`: ascending.
  explicit ServedClients(std::vector<Rank> ranks) : ranks_(std::move(ranks)) {}

  const std::vector<Rank>& ranks() const { return ranks_; }
  std::int32_t count() const { return static_cast<std::int32_t>(ranks_.size()); }
  bool has(Rank rank) const;
  // From 0, in the order of the ranks. REQUIRES: has(rank).
  std::int32_t number_of(Rank rank) const;

  // One that has finished or died leaves; it returns where it sends another request.
  void leaves(Rank rank) { left_.insert(rank); }
  void returns(Rank rank) { left_.erase(rank); }
  void return_all() { left_.clear(); }
  // It is lost: a later life of the rank has committed nothing.
  void forget(Rank rank) {
    newest_.erase(rank);
    left_.erase(rank);
  }
  std::int32_t present() const { return count() - static_cast<std::int32_t>(left_.size()); }

  // A commit of `rank` led to `version`.
  void committed(Rank rank, Version version) { newest_[rank] = version; }
  // Of an update that was computed at version `then`: the versions up to `now`, without the
  // client's own one.
  std::int64_t staleness(Rank rank, Version now, Version then) const;

  // `known`: the ranks that a saved state may name, ascending.
  void fields(Archive& a, const std::vector<Rank>& known);

 private:
  const std::vector<Rank> ranks_;
  std::map<Rank, Version> newest_;  // that a client's commit led to
  std::set<Rank> left_;
};

}  // namespace grapevine
