// Lockstep: the roles of all ranks in one thread, without actors, workers and wires: for what an
// exchange does by itself. Every rank gets one gradient, then all messages arrive, in the order in
// which they were sent; then the next gradient. Or event by event, in a random order.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/roles/make_role.hpp"
#include "messages/envelope.hpp"

namespace grapevine {

// Not thread-safe.
class Lockstep {
 public:
  // The gradient of a rank and step at z, [d] float32.
  using GradientOf = std::function<at::Tensor(Rank rank, Step step, const at::Tensor& z)>;
  // Called for each message before it arrives; false loses it.
  using OnMessage = std::function<bool(const Envelope& envelope)>;

  // `start`: the parameters of a rank, [d] float32.
  Lockstep(const std::shared_ptr<const SharedParts>& parts, std::int32_t workers,
           const std::function<at::Tensor(Rank)>& start, GradientOf gradient_of,
           OnMessage on_message = nullptr);
  ~Lockstep();

  // Starts all ranks; the messages that they begin with arrive.
  void start();
  // A gradient for each rank that asks for one, and all messages that follow. Starts first, where
  // that was not done. False where nothing was left to do: all have finished, or wait for lost
  // messages. Timers never fire: no time passes.
  bool sweep();
  // One event, drawn from `rng`: a message arrives (those from one rank to another in the order in
  // which they were sent), or a gradient, or a part of one where the role asks for parts; where
  // there is neither, time passes to the next timer. Starts first, where that was not done. False
  // where nothing is left.
  bool step(Rng& rng);
  // Replaces every role by a new one that loads the state of the old one, as a resumed run does:
  // messages on their way are decoded from their bytes, timers are gone, gradients that were asked
  // for are asked for again. Errors: a role that refuses its own state.
  Expected<void> save_and_load();

  std::int32_t ranks() const { return static_cast<std::int32_t>(seats_.size()); }
  bool finished(Rank rank) const;
  const ModelState& model(Rank rank) const;
  const Role& role(Rank rank) const;
  // What the role of a rank has recorded.
  const std::vector<Event>& events(Rank rank) const;

 private:
  class Seat;

  void begin();
  void answer(Seat& seat);
  void deliver_all();
  void deliver(Envelope envelope);
  bool fire_timer();

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const GradientOf gradient_of_;
  const OnMessage on_message_;

  std::vector<std::unique_ptr<Seat>> seats_;
  std::deque<Envelope> wire_;
  std::multimap<Timestamp, std::pair<Rank, TimerId>> timers_;  // by the time when they are due
  Timestamp now_{0};
  bool started_ = false;
};

}  // namespace grapevine
