#include "actors/unexpected_messages.hpp"

#include <spdlog/spdlog.h>

#include "messages/text/log_limits.hpp"

namespace grapevine {
namespace {

caf::result<caf::message> ignore_unexpected(caf::scheduled_actor* self, caf::message_view&) {
  static LogLimits limits;  // of all actors of the process
  if (const auto more = limits.admit(self->name(), self->clock().now()))
    spdlog::warn("ignored a message that the actor '{}' does not take{}", self->name(), *more);
  return caf::sec::unexpected_message;
}

}  // namespace

void detail::ignore_unexpected_messages(caf::scheduled_actor& self) {
  self.set_default_handler(ignore_unexpected);
}

}  // namespace grapevine
