// ActorList: the actors of a process in a message between processes, for its inspect().
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <caf/actor_cast.hpp>
#include <caf/actor_control_block.hpp>
#include <caf/error.hpp>
#include <caf/node_id.hpp>
#include <caf/sec.hpp>

#include "actors/protocol/packed_lists.hpp"

namespace grapevine {

// CAF names each actor by its number and its process, in about fifty bytes. This object names each
// process once, and packs the numbers. `processes` and `bytes` are fields of the message; publish()
// is for caf::meta::save_callback, restore() for caf::meta::load_callback, once they have been
// read. `actors` outlives this object.
template <class Actor>
class ActorList {
 public:
  explicit ActorList(std::vector<Actor>& actors) : actors_(actors) {
    Integers numbers, places;
    for (const Actor& actor : actors) {
      const auto pointer = caf::actor_cast<caf::strong_actor_ptr>(actor);
      numbers.push_back(pointer ? static_cast<std::int64_t>(pointer->id()) : kNone);
      places.push_back(pointer ? place_of(pointer->node()) : 0);
    }
    pack(numbers, bytes);
    pack(places, bytes);
  }

  // Other processes may name the actors from now on.
  caf::error publish(caf::execution_unit* context) const {
    for (const Actor& actor : actors_) {
      auto pointer = caf::actor_cast<caf::strong_actor_ptr>(actor);
      if (!pointer) continue;
      if (auto error = caf::save_actor(pointer, context, pointer->id(), pointer->node()))
        return error;
    }
    return {};
  }

  // Errors: the fields name no actors.
  caf::error restore(caf::execution_unit* context) {
    PackedReader reader(bytes);
    const auto numbers = reader.take(), places = reader.take();
    if (!numbers || !places || !reader.at_end() || numbers->size() != places->size())
      return caf::sec::end_of_stream;
    actors_.clear();
    for (std::size_t i = 0; i < numbers->size(); ++i) {
      caf::strong_actor_ptr pointer;
      if (auto error = load(context, (*numbers)[i], (*places)[i], pointer)) return error;
      actors_.push_back(caf::actor_cast<Actor>(std::move(pointer)));
    }
    return {};
  }

  std::vector<caf::node_id> processes;
  std::string bytes;

 private:
  static constexpr std::int64_t kNone = 0;  // CAF's number of no actor

  std::int64_t place_of(const caf::node_id& process) {
    const auto found = std::find(processes.begin(), processes.end(), process);
    const std::int64_t place = found - processes.begin();
    if (found == processes.end()) processes.push_back(process);
    return place;
  }

  // An actor of this process that has ended is an error, too.
  caf::error load(caf::execution_unit* context, std::int64_t number, std::int64_t place,
                  caf::strong_actor_ptr& pointer) const {
    if (number == kNone) return {};
    if (place < 0 || static_cast<std::size_t>(place) >= processes.size())
      return caf::sec::end_of_stream;
    const caf::node_id& process = processes[static_cast<std::size_t>(place)];
    if (auto error = caf::load_actor(pointer, context, static_cast<caf::actor_id>(number), process))
      return error;
    return pointer ? caf::error() : caf::error(caf::sec::end_of_stream);
  }

  std::vector<Actor>& actors_;
};

}  // namespace grapevine
