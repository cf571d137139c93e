#include "algorithms/lockstep/lockstep.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "algorithms/wiring/make_parts.hpp"
#include "messages/check.hpp"
#include "messages/codec.hpp"
#include "messages/gradient.hpp"
#include "messages/random.hpp"

namespace grapevine {

class Lockstep::Seat final : public Env {
 public:
  Seat(Lockstep& world, const std::shared_ptr<const SharedParts>& parts, Rank rank,
       std::int32_t ranks, const at::Tensor& x)
      : world_(world),
        rank_(rank),
        start_(FrozenTensor::copy_of(x)),
        rng_(mix_seed(parts->plan.seed, static_cast<std::uint64_t>(rank))) {
    members_.alive.assign(static_cast<std::size_t>(ranks), true);
    make_fresh_role();
  }

  Expected<void> save_and_load() {
    const StateDict state = role->save();
    const ModelState before = model;
    make_fresh_role();
    model = before;
    model.lr = 0;  // no checkpoint has it
    request.reset();
    computed = at::Tensor();
    return role->load(state);
  }

  Rank rank() const override { return rank_; }
  const Membership& membership() const override { return members_; }
  Timestamp now() const override { return world_.now_; }
  Rng& rng() override { return rng_; }
  void send(Rank to, Stamp stamp, Payload payload) override {
    GRAPEVINE_CHECK(to >= 0 && to < members_.world_size(), "rank ", rank_, " sends to ", to);
    world_.wire_.push_back({rank_, to, stamp, std::move(payload)});
  }
  void compute(Step step, FrozenTensor z) override {
    GRAPEVINE_CHECK(!request, "rank ", rank_, " asked for two gradients at once");
    request = GradientRequest{step, std::move(z), {}, {}};
  }
  void compute_in_parts(Step step, FrozenTensor z, const PartBegins& parts) override {
    compute(step, std::move(z));
    request->parts = parts;
  }
  void recycle(FrozenTensor) override {}
  void after(Duration delay, TimerId id) override {
    world_.timers_.emplace(world_.now_ + delay, std::pair{rank_, id});
  }
  void record(const Event& event) override { events.push_back(event); }
  void finished() override { is_finished = true; }

  ModelState model;
  std::unique_ptr<Role> role;
  std::optional<GradientRequest> request;
  at::Tensor computed;  // [n], the part of its gradient that was not given yet; undefined: all
  std::vector<Event> events;
  bool is_finished = false;

 private:
  // A server cuts the parameters to its slice.
  void make_fresh_role() {
    model.x = start_;
    role = make_role(world_.parts_, rank_, members_.world_size(), model);
  }

  Lockstep& world_;
  const Rank rank_;
  const FrozenTensor start_;  // the parameters before the first step
  Membership members_;
  Rng rng_;
};

namespace {

// Where the last part of the first `size` elements begins; 0: they have no other.
std::int64_t last_part_of(std::int64_t size, const PartBegins& parts) {
  std::int64_t last = 0;
  if (parts)
    for (const std::int64_t begin : *parts)
      if (begin < size) last = begin;
  return last;
}

}  // namespace

Lockstep::Lockstep(const std::shared_ptr<const SharedParts>& parts, std::int32_t workers,
                   const std::function<at::Tensor(Rank)>& start, GradientOf gradient_of,
                   OnMessage on_message)
    : parts_(parts), gradient_of_(std::move(gradient_of)), on_message_(std::move(on_message)) {
  const std::int32_t ranks = all_ranks_of(parts->plan, workers);
  for (Rank rank = 0; rank < ranks; ++rank)
    seats_.push_back(std::make_unique<Seat>(*this, parts, rank, ranks, start(rank)));
}

Lockstep::~Lockstep() = default;

void Lockstep::begin() {
  if (std::exchange(started_, true)) return;
  for (const auto& seat : seats_) seat->role->on_start(*seat);
}

void Lockstep::start() {
  begin();
  deliver_all();
}

bool Lockstep::sweep() {
  start();
  std::vector<Seat*> asking;
  for (const auto& seat : seats_)
    if (seat->request) asking.push_back(seat.get());
  for (Seat* seat : asking) {
    do {
      answer(*seat);
    } while (seat->computed.defined());  // one gradient, in all its parts
  }
  deliver_all();
  return !asking.empty();
}

bool Lockstep::step(Rng& rng) {
  begin();
  std::vector<std::size_t> arrivals;  // the oldest message of each pair of ranks, by its place
  std::set<std::pair<Rank, Rank>> pairs;
  for (std::size_t i = 0; i < wire_.size(); ++i)
    if (pairs.insert({wire_[i].from, wire_[i].to}).second) arrivals.push_back(i);
  std::vector<Seat*> asking;
  for (const auto& seat : seats_)
    if (seat->request) asking.push_back(seat.get());
  if (arrivals.empty() && asking.empty()) return fire_timer();
  const std::size_t choice = rng() % (arrivals.size() + asking.size());
  if (choice >= arrivals.size()) {
    answer(*asking[choice - arrivals.size()]);
    return true;
  }
  const auto place = wire_.begin() + static_cast<std::ptrdiff_t>(arrivals[choice]);
  Envelope envelope = std::move(*place);
  wire_.erase(place);
  deliver(std::move(envelope));
  return true;
}

Expected<void> Lockstep::save_and_load() {
  CodecLimits limits;
  limits.world_size = ranks();
  for (Envelope& envelope : wire_) {
    const std::vector<std::byte> bytes = encode(envelope);
    auto decoded = decode(bytes.data(), bytes.size(), limits);
    if (!decoded) return decoded.error();
    envelope = *std::move(decoded);
  }
  timers_.clear();
  for (const auto& seat : seats_)
    if (auto loaded = seat->save_and_load(); !loaded) return loaded;
  if (!started_) return {};
  for (const auto& seat : seats_)
    if (!seat->is_finished) seat->role->on_start(*seat);
  return {};
}

// With one part of the gradient, or, where that is the first, with the gradient.
void Lockstep::answer(Seat& seat) {
  const GradientRequest& asked = *seat.request;
  if (!seat.computed.defined())
    seat.computed = gradient_of_(seat.rank(), asked.step, asked.z.read());
  const std::int64_t begin = last_part_of(seat.computed.numel(), asked.parts);
  if (begin > 0) {
    GradientPart part{asked.step, begin, FrozenTensor::copy_of(seat.computed.slice(0, begin))};
    seat.computed = seat.computed.narrow(0, 0, begin);
    return seat.role->on_gradient_part(seat, std::move(part));
  }
  GradientRequest request = *std::exchange(seat.request, std::nullopt);
  Gradient gradient;
  gradient.step = request.step;
  gradient.value = FrozenTensor::copy_of(std::exchange(seat.computed, at::Tensor()));
  request.z = FrozenTensor();  // so that the role changes x without a copy
  seat.role->on_gradient(seat, std::move(gradient));
}

bool Lockstep::fire_timer() {
  if (timers_.empty()) return false;
  const auto [due, timer] = *timers_.begin();
  timers_.erase(timers_.begin());
  now_ = std::max(now_, due);
  Seat& seat = *seats_[static_cast<std::size_t>(timer.first)];
  seat.role->on_timer(seat, timer.second);
  return true;
}

void Lockstep::deliver_all() {
  while (!wire_.empty()) {
    Envelope envelope = std::move(wire_.front());
    wire_.pop_front();
    deliver(std::move(envelope));
  }
}

void Lockstep::deliver(Envelope envelope) {
  if (on_message_ && !on_message_(envelope)) return;
  Seat& to = *seats_[static_cast<std::size_t>(envelope.to)];
  to.role->on_message(to, std::move(envelope));
}

bool Lockstep::finished(Rank rank) const {
  return seats_[static_cast<std::size_t>(rank)]->is_finished;
}

const ModelState& Lockstep::model(Rank rank) const {
  return seats_[static_cast<std::size_t>(rank)]->model;
}

const std::vector<Event>& Lockstep::events(Rank rank) const {
  return seats_[static_cast<std::size_t>(rank)]->events;
}

const Role& Lockstep::role(Rank rank) const {
  return *seats_[static_cast<std::size_t>(rank)]->role;
}

}  // namespace grapevine
