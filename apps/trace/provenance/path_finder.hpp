// PathFinder: the second pass of a search for provenance.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/trace/provenance/provenance.hpp"

namespace grapevine {

// How the updates came that an UpdateFinder has found.
class PathFinder {
 public:
  PathFinder(Provenance& found, std::int32_t workers);

  void add(const TraceRecord& record);
  // Each contribution to an operation becomes an update; where none is recorded, `of_operation`,
  // which the rank itself has recorded, by index of the operation.
  void finish(const std::map<std::size_t, TracedUpdate>& of_operation);

 private:
  using MessageName = std::pair<Rank, std::uint64_t>;            // sender, sequence
  using ServedClient = std::pair<Rank, Rank>;                    // server, client
  using ContributionName = std::tuple<std::size_t, Rank, Step>;  // operation, worker, step

  void follow_message(const TraceRecord& record);
  void follow_pull(const TraceRecord& record);
  void add_pull(TracedUpdate& update) const;
  void follow_operation(const TraceRecord& record, std::size_t number);
  void follow_part(const TraceRecord& record, TracedOperation& operation);
  void arrive(MessageHop& hop, const TraceRecord& received) const;
  void add_older_models();
  void add_contribution(std::size_t number, TracedUpdate update);

  Provenance& found_;
  std::map<MessageName, std::vector<std::size_t>> wanted_;  // updates by their message
  std::map<ServedClient, std::vector<MessageHop>> pulls_;   // of the clients of these updates
  std::map<ContributionName, TracedUpdate> contributions_;
  std::map<std::pair<std::size_t, Rank>, TracedUpdate> older_models_;  // by operation and rank
  std::map<MessageName, MessageHop> parts_on_their_way_;               // of operations, to the rank
  std::map<Rank, std::int64_t> resumed_ns_;                            // the last time
};

}  // namespace grapevine
