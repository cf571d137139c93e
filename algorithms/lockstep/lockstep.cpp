#include "algorithms/lockstep/lockstep.hpp"

#include <optional>
#include <utility>

#include "messages/check.hpp"
#include "messages/gradient.hpp"
#include "messages/random.hpp"

namespace grapevine {

class Lockstep::Seat final : public Env {
 public:
  Seat(Lockstep& world, const std::shared_ptr<const SharedParts>& parts, Rank rank,
       std::int32_t ranks, const at::Tensor& x)
      : world_(world),
        rank_(rank),
        rng_(mix_seed(parts->plan.seed, static_cast<std::uint64_t>(rank))) {
    members_.alive.assign(static_cast<std::size_t>(ranks), true);
    model.x = FrozenTensor::copy_of(x);
    role = make_role(parts, rank, ranks, model);
  }

  Rank rank() const override { return rank_; }
  const Membership& membership() const override { return members_; }
  Timestamp now() const override { return Timestamp(0); }
  Rng& rng() override { return rng_; }
  void send(Rank to, Stamp stamp, Payload payload) override {
    world_.wire_.push_back({rank_, to, stamp, std::move(payload)});
  }
  void compute(Step step, FrozenTensor z) override {
    GRAPEVINE_CHECK(!request, "rank ", rank_, " asked for two gradients at once");
    request = GradientRequest{step, std::move(z), {}, {}};
  }
  void recycle(FrozenTensor) override {}
  void after(Duration, TimerId) override {}
  void record(const Event&) override {}
  void finished() override { is_finished = true; }

  ModelState model;
  std::unique_ptr<Role> role;
  std::optional<GradientRequest> request;
  bool is_finished = false;

 private:
  Lockstep& world_;
  const Rank rank_;
  Membership members_;
  Rng rng_;
};

Lockstep::Lockstep(const std::shared_ptr<const SharedParts>& parts, std::int32_t workers,
                   const std::function<at::Tensor(Rank)>& start, GradientOf gradient_of,
                   OnMessage on_message)
    : gradient_of_(std::move(gradient_of)), on_message_(std::move(on_message)) {
  const std::int32_t ranks = all_ranks_of(parts->plan, workers);
  for (Rank rank = 0; rank < ranks; ++rank)
    seats_.push_back(std::make_unique<Seat>(*this, parts, rank, ranks, start(rank)));
}

Lockstep::~Lockstep() = default;

void Lockstep::start() {
  if (std::exchange(started_, true)) return;
  for (const auto& seat : seats_) seat->role->on_start(*seat);
  deliver_all();
}

bool Lockstep::sweep() {
  start();
  std::vector<Seat*> asking;
  for (const auto& seat : seats_)
    if (seat->request) asking.push_back(seat.get());
  for (Seat* seat : asking) {
    GradientRequest request = *std::exchange(seat->request, std::nullopt);
    Gradient gradient;
    gradient.step = request.step;
    gradient.value =
        FrozenTensor::copy_of(gradient_of_(seat->rank(), request.step, request.z.read()));
    request.z = FrozenTensor();  // so that the role changes x without a copy
    seat->role->on_gradient(*seat, std::move(gradient));
  }
  deliver_all();
  return !asking.empty();
}

void Lockstep::deliver_all() {
  while (!wire_.empty()) {
    Envelope envelope = std::move(wire_.front());
    wire_.pop_front();
    if (on_message_ && !on_message_(envelope)) continue;
    Seat& to = *seats_[static_cast<std::size_t>(envelope.to)];
    to.role->on_message(to, std::move(envelope));
  }
}

bool Lockstep::finished(Rank rank) const {
  return seats_[static_cast<std::size_t>(rank)]->is_finished;
}

const ModelState& Lockstep::model(Rank rank) const {
  return seats_[static_cast<std::size_t>(rank)]->model;
}

const Role& Lockstep::role(Rank rank) const {
  return *seats_[static_cast<std::size_t>(rank)]->role;
}

}  // namespace grapevine
