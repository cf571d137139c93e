#include "tests/apps/simulate/mutants/mutants.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "algorithms/roles/gossip/gossip.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "tests/apps/simulate/mutants/mutant_role.hpp"
#include "tests/apps/simulate/mutants/mutant_transport.hpp"

namespace grapevine {
namespace simulate_mutants {
namespace {

void scale(FrozenTensor& value, double factor) {
  at::Tensor t = std::move(value).thaw();
  t.mul_(factor);
  value = FrozenTensor::freeze(std::move(t));
}

template <class B>
std::function<void(SimJob&)> with() {
  return [](SimJob& made) {
    plant(made, [](const Place& place) { return std::make_unique<B>(place); });
  };
}

class PlacedBug : public Bug {
 public:
  explicit PlacedBug(const Place& place) : place_(place) {}

 protected:
  const Place place_;
};

// ---- gradients ----

// A gradient whose operation ended without it counts `factor` times.
template <int factor>
class LateGradient final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_record(Event& event) override {
    if (event.kind == EventKind::reduced)
      late_ = !std::binary_search(event.members.begin(), event.members.end(), place_.rank);
    return 1;
  }
  void on_gradient(Gradient& gradient) override {
    if (std::exchange(late_, false)) scale(gradient.value, factor);
  }

 private:
  bool late_ = false;
};

class CommittedTwice final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_record(Event& event) override {
    return event.kind == EventKind::committed && event.stamp.step == 5 && place_.rank == 2 ? 2 : 1;
  }
};

class NeverCommitted final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_record(Event& event) override {
    return event.kind == EventKind::committed && event.stamp.step == 7 && place_.rank == 0 ? 0 : 1;
  }
};

// The mean is divided by the number of ranks at the start.
class OldDivisor final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  void on_gradient(Gradient& gradient) override {
    if (place_.later_view) scale(gradient.value, static_cast<double>(place_.ranks) / kAtStart);
  }

 private:
  static constexpr int kAtStart = 4;
};

// ---- push-sum ----

class ForgetsWeight final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_send(Rank&, Stamp&, Payload& payload) override {
    if (auto* share = std::get_if<Share>(&payload)) share->w *= 0.5;
    return 1;
  }
};

class FoldsTwiceInLaterViews final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_receive(const Envelope& envelope) override {
    const auto* share = std::get_if<Share>(&envelope.payload);
    if (share == nullptr || !place_.later_view || std::exchange(done_, true)) return 1;
    at::Tensor x = std::move(place_.model.x).thaw();
    x.add_(share->x.read());
    place_.model.x = FrozenTensor::freeze(std::move(x));
    place_.model.w += share->w;
    return 1;
  }

 private:
  bool done_ = false;
};

// A share after its receiver's last step.
class DropsLateShare final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_receive(const Envelope& envelope) override {
    return std::holds_alternative<Share>(envelope.payload) && place_.model.step >= 12 ? 0 : 1;
  }
};

void skip_more_rounds(SimJob& made) {
  auto parts = std::make_shared<SharedParts>(*made.job.run.parts);
  auto settings = std::make_shared<GossipSettings>(data_as<GossipSettings>(parts->plan.settings));
  settings->staleness = CountSchedule::constant(3);
  parts->plan.settings = std::move(settings);
  made.job.run.parts = std::move(parts);
}

// ---- collectives ----

// Each rank waits for its left neighbour before it sends to the right one.
class WaitsInACircle final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_send(Rank&, Stamp&, Payload& payload) override {
    const auto* chunk = std::get_if<Chunk>(&payload);
    return chunk != nullptr && chunk->operation > received_ ? 0 : 1;
  }
  int on_receive(const Envelope& envelope) override {
    if (const auto* chunk = std::get_if<Chunk>(&envelope.payload)) received_ = chunk->operation;
    return 1;
  }

 private:
  std::int64_t received_ = 2;  // the first operations are as ever
};

class LeftInsteadOfRight final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_send(Rank& to, Stamp&, Payload& payload) override {
    const auto* chunk = std::get_if<Chunk>(&payload);
    if (chunk != nullptr && chunk->operation == 4)
      to = (2 * place_.rank - to + place_.ranks) % place_.ranks;
    return 1;
  }
};

class MomentumLostByJoiner final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  void on_joined(Role& role) override {
    StateDict state = role.save_shared();
    for (const auto& [name, value] : state.entries())
      if (const auto* tensor = std::get_if<at::Tensor>(&value);
          tensor != nullptr && name.find("optimizer") != std::string::npos)
        state.put(name, at::zeros_like(*tensor));
    Archive archive = Archive::loader(state);
    role.shared_fields(archive);
  }
};

class NamesOtherMembers final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_record(Event& event) override {
    if (event.kind == EventKind::reduced && event.operation == 3 && place_.rank == 1 &&
        event.members.size() > 1)
      event.members.pop_back();
    return 1;
  }
};

void drop_residuals(SimJob& made) {
  auto parts = std::make_shared<SharedParts>(*made.job.run.parts);
  parts->plan.compression.error_feedback = false;
  made.job.run.parts = std::move(parts);
}

// ---- servers ----

// A server never serves one of its clients' requests.
class LosesARequest final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_receive(const Envelope& envelope) override {
    const bool asks = place_.server && std::holds_alternative<Ask>(envelope.payload);
    return asks && ++requests_ == 20 ? 0 : 1;
  }

 private:
  int requests_ = 0;
};

class SkipsVersions final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_send(Rank&, Stamp& stamp, Payload&) override {
    if (place_.server && stamp.version >= 10) ++stamp.version;
    return 1;
  }
};

class ReportsNoStaleness final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_record(Event& event) override {
    if (event.kind == EventKind::applied) event.staleness = 0;
    return 1;
  }
};

// ---- the run ----

// The difference that its giver subtracts: the sum of the two models grows by it.
class LosesAReply final : public PlacedBug {
 public:
  using PlacedBug::PlacedBug;
  int on_send(Rank&, Stamp&, Payload& payload) override {
    const auto* swap = std::get_if<Swap>(&payload);
    return swap != nullptr && swap->reply && swap->exchange == 3 ? 0 : 1;
  }
};

}  // namespace

const std::vector<Mutant>& all() {
  static const std::vector<Mutant> mutants = {
      {"late_gradient_lost", "sum", "eager-solo", with<LateGradient<0>>()},
      {"late_gradient_counted_twice", "sum", "eager-quorum", with<LateGradient<2>>()},
      {"gradient_committed_twice", "ledger", "ad-psgd", with<CommittedTwice>()},
      {"gradient_never_committed", "ledger", "wagma", with<NeverCommitted>()},
      {"divisor_of_the_first_view", "sum", "ar", with<OldDivisor>()},
      {"weight_forgotten", "mass", "sgp", with<ForgetsWeight>()},
      {"folded_twice_after_a_view", "mass", "sgp", with<FoldsTwiceInLaterViews>()},
      {"late_share_dropped", "mass", "osgp", with<DropsLateShare>(), {"staleness=4"}},
      {"more_rounds_skipped_than_tau", "staleness", "osgp", skip_more_rounds},
      {"all_wait_in_a_circle", "liveness", "ar", with<WaitsInACircle>(), {}, 0, 5},
      {"left_neighbour_for_right", "liveness", "ar", with<LeftInsteadOfRight>()},
      {"reply_lost", "sum", "ad-psgd", with<LosesAReply>()},
      {"momentum_lost_by_a_joiner", "agreement", "ar", with<MomentumLostByJoiner>(), {}, 0.9},
      {"other_members_at_one_rank", "agreement", "eager-majority", with<NamesOtherMembers>()},
      {"residual_dropped", "feedback", "topk", drop_residuals, {"density=0.1"}},
      // Of so many entries the check follows a sample.
      {"residual_dropped_of_many",
       "feedback",
       "topk",
       drop_residuals,
       {"density=0.1"},
       0,
       4,
       300'000},
      {"request_lost", "liveness", "gem", with<LosesARequest>()},
      {"version_skipped", "version", "gem", with<SkipsVersions>()},
      {"staleness_not_reported", "version", "downpour", with<ReportsNoStaleness>()},
      {"earlier_life_accepted", "delivery", "sgp", replay_earlier_lives},
      {"message_overtakes", "delivery", "osgp", let_one_overtake, {"staleness=4"}},
  };
  return mutants;
}

}  // namespace simulate_mutants
}  // namespace grapevine
