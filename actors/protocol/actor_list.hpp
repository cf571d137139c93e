// ActorList: the actors of a process in a message between processes, for its inspect().
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <caf/actor_cast.hpp>
#include <caf/actor_control_block.hpp>
#include <caf/error.hpp>
#include <caf/node_id.hpp>
#include <caf/sec.hpp>

#include "actors/protocol/packed_integers.hpp"

namespace grapevine {

// CAF names each actor by its number and its process, in about fifty bytes. This object names the
// process once, and each actor in four bytes. They are not packed: for each actor of another
// process that it reads, CAF makes a proxy, which lives as long as the connection. So a message
// makes no more of them than a quarter of its bytes. `process`, `first` and `numbers` are fields of
// the message; publish() is for caf::meta::save_callback, restore() for caf::meta::load_callback,
// once they have been read. `actors` outlives this object.
template <class Actor>
class ActorList {
 public:
  explicit ActorList(std::vector<Actor>& actors) : actors_(actors) {
    bool any = false;
    for (const Actor& actor : actors)
      if (const auto pointer = pointer_of(actor)) {
        first = any ? std::min<std::uint64_t>(first, pointer->id()) : pointer->id();
        process = pointer->node();
        any = true;
      }
    for (const Actor& actor : actors) numbers.push_back(number_of(pointer_of(actor)));
  }

  // Other processes may name the actors from now on. Errors: they are of several processes, or
  // their numbers differ by more than four bytes hold.
  caf::error publish(caf::execution_unit* context) const {
    if (!fits_) return caf::sec::invalid_argument;
    for (const Actor& actor : actors_) {
      auto pointer = pointer_of(actor);
      if (!pointer) continue;
      if (auto error = caf::save_actor(pointer, context, pointer->id(), pointer->node()))
        return error;
    }
    return {};
  }

  // Errors: the fields name no actors, or more than a run has ranks.
  caf::error restore(caf::execution_unit* context) {
    if (numbers.size() > kMostPacked) return caf::sec::end_of_stream;
    actors_.clear();
    for (const std::uint32_t number : numbers) {
      caf::strong_actor_ptr pointer;
      if (auto error = load(context, number, pointer)) return error;
      actors_.push_back(caf::actor_cast<Actor>(std::move(pointer)));
    }
    return {};
  }

  caf::node_id process;                // of all
  std::uint64_t first = 0;             // the least number
  std::vector<std::uint32_t> numbers;  // of each actor: less `first`, and 1 more; kNone: no actor

 private:
  static constexpr std::uint32_t kNone = 0;

  static caf::strong_actor_ptr pointer_of(const Actor& actor) {
    return caf::actor_cast<caf::strong_actor_ptr>(actor);
  }

  std::uint32_t number_of(const caf::strong_actor_ptr& pointer) {
    if (!pointer) return kNone;
    const std::uint64_t beyond = pointer->id() - first;
    if (pointer->node() != process || beyond >= std::numeric_limits<std::uint32_t>::max())
      fits_ = false;
    return static_cast<std::uint32_t>(beyond) + 1;
  }

  // An actor of this process that has ended is an error, too.
  caf::error load(caf::execution_unit* context, std::uint32_t number,
                  caf::strong_actor_ptr& pointer) const {
    if (number == kNone) return {};
    const std::uint64_t beyond = number - 1;
    if (beyond > std::numeric_limits<std::uint64_t>::max() - first) return caf::sec::end_of_stream;
    if (auto error = caf::load_actor(pointer, context, first + beyond, process)) return error;
    return pointer ? caf::error() : caf::error(caf::sec::end_of_stream);
  }

  std::vector<Actor>& actors_;
  bool fits_ = true;
};

}  // namespace grapevine
