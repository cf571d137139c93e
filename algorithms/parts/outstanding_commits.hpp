// OutstandingCommits: gradients that a client gave to its servers together, until all of them have
// answered.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "algorithms/state_dict.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Not thread-safe.
class OutstandingCommits {
 public:
  // The gradients of `steps` go to `servers` servers in this exchange.
  void send(std::int64_t exchange, std::vector<Step> steps, std::int32_t servers);

  struct Outcome {
    std::vector<Step> steps;
    bool refused = false;  // by one of the servers
  };
  // One server's answer; what became of the parcel, once it is the last. A receipt for nothing is a
  // broken invariant.
  std::optional<Outcome> on_receipt(std::int64_t exchange, bool accepted);
  bool empty() const { return open_.empty(); }

  StateDict save() const;
  // `servers`: how many answers a parcel waits for at most. Errors (bad_input): entries that are
  // missing or damaged; this is then as before.
  Expected<void> load(const StateDict& state, std::int32_t servers);

 private:
  struct Pending {
    std::vector<Step> steps;
    std::int64_t receipts_due = 0;
    bool refused = false;
  };

  std::map<std::int64_t, Pending> open_;  // by exchange
};

}  // namespace grapevine
