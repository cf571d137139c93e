#include "actors/run/supervision/early_orders.hpp"

#include <utility>

namespace grapevine {

bool EarlyOrders::add(Kind kind, const caf::node_id& process, caf::actor_addr sender,
                      std::function<void()> order) {
  std::map<caf::node_id, Early>& of_kind = orders_[kind];
  if (of_kind.count(process) > 0) return true;  // the first one counts
  if (of_kind.size() >= kMost) return false;
  of_kind.emplace(process, Early{std::move(sender), std::move(order)});
  return true;
}

std::vector<std::function<void()>> EarlyOrders::take(
    const std::function<bool(const caf::actor_addr&)>& is_of_the_run) {
  std::vector<std::function<void()>> taken;
  for (auto& [kind, of_kind] : std::exchange(orders_, {}))
    for (auto& [process, early] : of_kind)
      if (is_of_the_run(early.sender)) taken.push_back(std::move(early.order));
  return taken;
}

}  // namespace grapevine
