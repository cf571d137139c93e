// What an actor that other processes reach does with messages that its interface does not have.
#pragma once
#include <type_traits>

#include <caf/all.hpp>

namespace grapevine {

namespace detail {
void ignore_unexpected_messages(caf::scheduled_actor& self);
}  // namespace detail

// CAF prints each of them with its content, which the sender chooses. From now on they are ignored,
// with a line of the log that is written at most once in ten seconds for each kind of actor. The
// name in the state of the actor is that kind.
template <class State, class Base>
void ignore_unexpected_messages(caf::stateful_actor<State, Base>& self) {
  static_assert(std::is_same_v<decltype(State::name), const char*>, "the line names the actor");
  detail::ignore_unexpected_messages(self);
}

}  // namespace grapevine
