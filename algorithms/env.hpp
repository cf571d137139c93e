// Env: everything that a role may do to the world. Roles are sans-IO: they hold no actor, thread,
// clock or socket, so that one implementation runs in production, in tests and in the simulator.
#pragma once
#include <cstdint>
#include <vector>

#include "messages/gradient.hpp"
#include "messages/protocol.hpp"
#include "messages/random.hpp"
#include "messages/stamp.hpp"
#include "messages/time.hpp"

namespace grapevine {

// Which ranks take part, as this rank knows it.
struct Membership {
  std::vector<bool> alive;  // one per rank

  std::int32_t world_size() const { return static_cast<std::int32_t>(alive.size()); }
  bool is_alive(Rank r) const { return alive[static_cast<std::size_t>(r)]; }
  std::int32_t alive_count() const {
    std::int32_t n = 0;
    for (bool a : alive) n += a;
    return n;
  }
};

// Events that a role records in the trace. The Peer itself records sends, receipts and gradients.
enum class EventKind : std::uint8_t {
  produced = 1,  // the worker returned a gradient
  sent,          // a message was handed to the transport
  received,      // a message reached the peer
  applied,       // an update entered the model of this rank; `staleness` is set
  committed,     // this rank's own contribution `stamp` counts: it is in the model or common result
  dropped,       // this rank's own contribution `stamp` was given up
  wait_begin,    // the role waits for a message of `peer` (-1: any)
  wait_end,
  step_done,   // the model of this rank finished a step
  contributed  // a partial sum began; `staleness`: age of the newest own contribution, -1: none
};

struct Event {
  EventKind kind = EventKind::applied;
  Rank peer = -1;  // the other end; -1: none
  Stamp stamp;     // of the update or message that it is about
  Step step = 0;   // this rank's step
  std::int64_t staleness = 0;
  std::uint64_t bytes = 0;
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
  // Gives memory of size d back for a later gradient; optional.
  virtual void recycle(FrozenTensor buffer) = 0;
  // Role::on_timer(id) after `delay`.
  virtual void after(Duration delay, TimerId id) = 0;
  virtual void record(const Event& event) = 0;
  // This rank has taken its last step. It still receives messages.
  virtual void finished() = 0;
};

}  // namespace grapevine
