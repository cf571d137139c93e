#include "net/tcp/tcp_receiver.hpp"

#include <fmt/format.h>

namespace grapevine::tcp {

Expected<void> Receiver::admit(Rank from, Rank to) {
  if (!lives_there(from))
    return Error{Errc::protocol,
                 fmt::format("a message from rank {}, which is not in that process", from)};
  if (!router_.placement().is_local(to))
    return Error{Errc::protocol,
                 fmt::format("a message for rank {}, which is not in this process", to)};
  return {};
}

Expected<void> Receiver::on_control(const Control& control) {
  if (control.kind == Control::ping) pings_++;
  if (control.kind != Control::rank_down) return {};
  if (!lives_there(control.rank))
    return Error{Errc::protocol, fmt::format("the departure of rank {}, which is not in that "
                                             "process",
                                             control.rank)};
  router_.rank_left(control.rank);
  return {};
}

bool Receiver::lives_there(Rank rank) const {
  const Placement& placement = router_.placement();
  return rank >= 0 && rank < placement.world_size() &&
         placement.process_of[static_cast<std::size_t>(rank)] == process_;
}

}  // namespace grapevine::tcp
