// EarlyOrders: what actors of other processes order before a run begins. The supervisor knows the
// processes of its run once it begins: until then, any program may have sent them.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include <caf/actor_addr.hpp>
#include <caf/node_id.hpp>

namespace grapevine {

// Orders of one kind take no room of another kind, and the orders of one process take one place.
// Not thread-safe.
class EarlyOrders {
 public:
  enum class Kind { failure, stop };
  static constexpr std::size_t kMost = 64;  // of each kind: one suffices to end the run

  // Keeps the first order of that kind from `process`, that of the sender. False: there is no room
  // for an order of another process.
  bool add(Kind kind, const caf::node_id& process, caf::actor_addr sender,
           std::function<void()> order);
  // Those whose sender is one of the run, failures first. None is left.
  std::vector<std::function<void()>> take(
      const std::function<bool(const caf::actor_addr&)>& is_of_the_run);

 private:
  struct Early {
    caf::actor_addr sender;
    std::function<void()> order;
  };
  std::map<Kind, std::map<caf::node_id, Early>> orders_;
};

}  // namespace grapevine
