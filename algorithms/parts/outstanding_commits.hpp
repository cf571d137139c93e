// OutstandingCommits: gradients that a client has sent to all of its servers and that not all of
// them have answered.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "algorithms/archive.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Not thread-safe.
class OutstandingCommits {
 public:
  // In this exchange the gradients of `steps` are sent to `servers` servers.
  void send(std::int64_t exchange, std::vector<Step> steps, std::int32_t servers);

  struct Outcome {
    std::vector<Step> steps;
    bool refused = false;  // by one of the servers
  };
  // One server's receipt. Returns the outcome with the last one. A receipt for an exchange without
  // an outstanding commit is a broken invariant.
  std::optional<Outcome> on_receipt(std::int64_t exchange, bool accepted);
  bool empty() const { return open_.empty(); }
  // Of those that lack an answer which does not come, by exchange; none is outstanding any more.
  std::vector<Outcome> take_all();

  // `servers`: the most receipts that a commit waits for. Errors (bad_input): entries that are
  // missing or damaged.
  void fields(Archive& a, std::int32_t servers);

 private:
  struct Pending {
    std::vector<Step> steps;
    std::int64_t receipts_due = 0;
    bool refused = false;
  };

  std::map<std::int64_t, Pending> open_;  // by exchange
};

}  // namespace grapevine
