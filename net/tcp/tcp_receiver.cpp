#include "net/tcp/tcp_receiver.hpp"

namespace grapevine::tcp {

Expected<void> Receiver::admit(Rank from, Rank to) {
  return check_sender(router_.placement(), process_, from, to);
}

Expected<void> Receiver::on_control(const Control& control) {
  if (control.kind == Control::ping) pings_++;
  if (control.kind != Control::rank_down) return {};
  Expected<void> checked = check_departure(router_.placement(), process_, control.rank);
  if (checked) router_.rank_left(control.rank);
  return checked;
}

}  // namespace grapevine::tcp
