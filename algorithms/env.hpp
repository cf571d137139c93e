// Env: everything that a role may do to the world. Roles are sans-IO: they hold no actor, thread,
// clock or socket, so that one implementation runs in production, in tests and in the simulator.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "messages/gradient.hpp"
#include "messages/protocol.hpp"
#include "messages/random.hpp"
#include "messages/stamp.hpp"
#include "messages/time.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

// Which ranks take part, as this rank knows it.
struct Membership {
  std::vector<bool> alive;  // one per rank

  std::int32_t world_size() const { return static_cast<std::int32_t>(alive.size()); }
  bool is_alive(Rank r) const { return alive[static_cast<std::size_t>(r)]; }
};

// An event that a role records in the trace. The Peer itself records messages, gradients and cuts,
// and which message has ended a wait.
struct Event {
  EventKind kind = EventKind::applied;
  Rank peer = -1;  // the other end; -1: none
  Stamp stamp;     // of the update or message that it is about
  Step step = 0;   // this rank's step
  std::int64_t staleness = 0;
  std::uint64_t bytes = 0;
  std::int64_t operation = -1;     // collective, round or exchange of the role; -1: none
  std::vector<Rank> members = {};  // of `reduced`: the ranks whose contributions are in, increasing
};

using TimerId = std::int64_t;

// All calls return at once. Only valid inside a handler of the role it was given to.
class Env {
 public:
  virtual ~Env() = default;
  virtual Rank rank() const = 0;
  virtual const Membership& membership() const = 0;
  virtual Timestamp now() const = 0;
  virtual Rng& rng() = 0;

  // Sends to another live rank. `stamp` needs origin, step and version; the rest is filled in.
  virtual void send(Rank to, Stamp stamp, Payload payload) = 0;
  // Asks the worker for the gradient of the batch of `step` at `z`. At most one may be outstanding;
  // it ends in Role::on_gradient.
  virtual void compute(Step step, FrozenTensor z) = 0;
  // The same, where the role can use parts of the gradient before it is complete: they come to
  // Role::on_gradient_part, any number of them or none.
  virtual void compute_in_parts(Step step, FrozenTensor z, const PartBegins& /*parts*/) {
    compute(step, std::move(z));
  }
  // Gives memory of size d back for a later gradient; optional.
  virtual void recycle(FrozenTensor buffer) = 0;
  // Role::on_timer(id) after `delay`.
  virtual void after(Duration delay, TimerId id) = 0;
  virtual void record(const Event& event) = 0;
  // This rank has taken its last step. It still receives messages.
  virtual void finished() = 0;
};

}  // namespace grapevine
