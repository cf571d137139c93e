#include "actors/run/simulation/control_link.hpp"

#include <utility>

namespace grapevine {
namespace {

struct TargetEnded {};

}  // namespace
}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TargetEnded)

namespace grapevine {
namespace {

class ControlLink final : public caf::monitorable_actor {
 public:
  ControlLink(caf::actor_config& config, caf::strong_actor_ptr target, Duration delay)
      : monitorable_actor(config), target_(std::move(target)), delay_(delay) {}

  const char* name() const override { return "control_link"; }

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit*) override {
    if (what->content().match_elements<TargetEnded>()) {
      target_ = nullptr;
      cleanup(std::move(reason_), nullptr);
    } else if (target_) {
      schedule(target_, std::move(what));
    } else if (what->mid.is_request() && what->sender) {
      // As CAF answers for an ended actor.
      schedule(what->sender,
               caf::make_mailbox_element(nullptr, what->mid.response_id(), {},
                                         caf::make_error(caf::sec::request_receiver_down)));
    }
  }

  // Behind the messages that the target has sent.
  void end(const caf::error& reason) {
    reason_ = reason;
    schedule(ctrl(), caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, TargetEnded{}));
  }

 private:
  void schedule(caf::strong_actor_ptr receiver, caf::mailbox_element_ptr what) {
    caf::actor_clock& clock = home_system().clock();
    clock.schedule_message(clock.now() + delay_, std::move(receiver), std::move(what));
  }

  caf::strong_actor_ptr target_;  // null once it has ended
  const Duration delay_;
  caf::error reason_;  // of that
};

}  // namespace

caf::strong_actor_ptr make_control_link(caf::actor_system& system, caf::strong_actor_ptr target,
                                        Duration delay) {
  caf::actor_config config;
  auto link = caf::make_actor<ControlLink, caf::strong_actor_ptr>(
      system.next_actor_id(), system.node(), &system, config, target, delay);
  auto* const own = static_cast<ControlLink*>(caf::actor_cast<caf::abstract_actor*>(link));
  const caf::weak_actor_ptr observed = caf::actor_cast<caf::weak_actor_ptr>(link);
  target->get()->attach_functor([own, observed](const caf::error& reason) {
    if (const caf::strong_actor_ptr alive = caf::actor_cast<caf::strong_actor_ptr>(observed))
      own->end(reason);
  });
  return link;
}

}  // namespace grapevine
