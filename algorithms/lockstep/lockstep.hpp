// Lockstep: the roles of all ranks in one thread, without actors, workers and wires: for what an
// exchange does by itself. Every rank gets one gradient, then all messages arrive, in the order in
// which they were sent; then the next gradient.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "algorithms/roles/make_role.hpp"
#include "messages/envelope.hpp"

namespace grapevine {

// Not thread-safe. Timers never fire: no time passes.
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
  // messages.
  bool sweep();

  std::int32_t ranks() const { return static_cast<std::int32_t>(seats_.size()); }
  bool finished(Rank rank) const;
  const ModelState& model(Rank rank) const;
  const Role& role(Rank rank) const;

 private:
  class Seat;

  void deliver_all();

  const GradientOf gradient_of_;
  const OnMessage on_message_;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::deque<Envelope> wire_;
  bool started_ = false;
};

}  // namespace grapevine
