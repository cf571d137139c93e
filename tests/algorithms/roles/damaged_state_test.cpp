// Checkpoints whose entries are damaged: load() says so in one line, or takes them; it never
// throws. Parameter servers and their clients go on with what they took.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/collectives/reduction.hpp"
#include "algorithms/compressors/error_feedback.hpp"
#include "algorithms/parts/outstanding_commits.hpp"
#include "algorithms/parts/service_queue.hpp"
#include "algorithms/roles/make_role.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace damaged_state_test {

using sim::RoleWorld;
using sim::WorldConfig;

// Other values for an entry. The first two never fit where it is wanted: one of another type, and
// none.
std::vector<std::optional<StateValue>> damaged(const StateValue& value) {
  std::vector<std::optional<StateValue>> all;
  if (std::holds_alternative<std::string>(value))
    all.emplace_back(std::int64_t{1});
  else
    all.emplace_back(std::string("damaged"));
  all.emplace_back(std::nullopt);
  if (const auto* number = std::get_if<std::int64_t>(&value))
    for (const std::int64_t other :
         {std::int64_t{-1}, *number + 1, *number + 1000, std::numeric_limits<std::int64_t>::max(),
          std::numeric_limits<std::int64_t>::min()})
      all.emplace_back(other);
  if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
    const at::Tensor t = tensor->clone();
    all.emplace_back(at::zeros({0}, t.options()));
    all.emplace_back(at::zeros({3, 2}, t.options()));
    all.emplace_back(t.numel() > 0 ? at::cat({t.flatten(), t.flatten()})
                                   : at::ones({5}, t.options()));
    all.emplace_back(t.to(t.scalar_type() == at::kDouble ? at::kHalf : at::kDouble));
    all.emplace_back(at::full_like(t, -7));
    all.emplace_back(t.numel() > 1 ? t.flatten().flip(0) : t);
  }
  return all;
}

// What every load() of one damaged entry has to keep to. Returns how many were refused.
template <class Load>
int try_all(const StateDict& state, const Load& load) {
  int refused = 0;
  for (const auto& [name, value] : state.entries()) {
    int which = 0;
    for (const std::optional<StateValue>& other : damaged(value)) {
      SCOPED_TRACE("entry '" + name + "', damage " + std::to_string(which++));
      StateDict changed;
      for (const auto& [key, kept] : state.entries())
        if (key != name) changed.put(key, kept);
      if (other) changed.put(name, *other);
      try {
        const Expected<void> loaded = load(changed);
        if (loaded.ok()) continue;
        ++refused;
        EXPECT_EQ(loaded.error().code, Errc::bad_input) << loaded.error().message;
        EXPECT_EQ(loaded.error().message.find('\n'), std::string::npos) << loaded.error().message;
      } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
      }
    }
  }
  return refused;
}

TEST(DamagedState, OfReductionsIsRefused) {
  constexpr std::int64_t kD = 40;
  for (const std::string reduce : {"all-gather", "all-gather-reselect", "butterfly", "tree"})
    for (const Rank rank : {0, 1, 2, 4}) {
      SCOPED_TRACE(reduce + ", rank " + std::to_string(rank));
      OptimizerConfig optimizer;
      optimizer.momentum = 0.9;
      const auto parts = *make_parts(sim::plan_of({{"compress", "top-k"},
                                                   {"density", "0.2"},
                                                   {"momentum_correction", "true"},
                                                   {"sparse_reduce", reduce}}),
                                     {10, 1e9}, *LrSchedule::make({}), optimizer, 5);
      Rng rng(3);
      const auto reduction = make_reduction(reduction_settings(*parts), all_ranks(5), rank, kD);
      reduction->start(0, 0, at::randn({kD}), rng);
      SparseVector list;
      list.add(3, 1.5F);
      list.add(7, -2);
      // One of this operation that is not its turn yet, and one of the next.
      const Rank from = (rank + 3) % 5;
      reduction->on_message(from, PackedChunk{0, 9, from, to_packed(list)});
      reduction->on_message(from, PackedChunk{1, 0, from, to_packed(list)});
      const StateDict state = save_state(*reduction, std::int64_t{0}, 0.0);
      const auto load = [&](const StateDict& damaged_state) {
        const auto fresh = make_reduction(reduction_settings(*parts), all_ranks(5), rank, kD);
        return load_state(*fresh, damaged_state, 0, 0.0);
      };
      ASSERT_TRUE(load(state).ok());
      // Missing entries and those of another type, but for the residuals of a rank that never
      // started, and for single lists.
      EXPECT_GT(try_all(state, load), static_cast<int>(state.entries().size()));
    }
}

// Every list of a packed vector in itself.
TEST(DamagedState, ListsThatCannotBeAreRefused) {
  const auto parts = *make_parts(sim::plan_of({{"compress", "top-k"}, {"density", "0.2"}}),
                                 {10, 1e9}, *LrSchedule::make({}), {}, 2);
  Rng rng(3);
  const auto reduction = make_reduction(reduction_settings(*parts), {0, 1}, 0, 40);
  SparseVector list;
  list.add(3, 1.5F);
  list.add(7, -2);
  reduction->start(0, 0, at::randn({40}), rng);
  reduction->on_message(1, PackedChunk{1, 0, 1, to_packed(list)});
  const auto with_indices = [&](const std::vector<std::int64_t>& indices) {
    StateDict state = save_state(*reduction, std::int64_t{0}, 0.0);
    state.put("inbox.0.indices", at::tensor(indices, at::kInt));
    const auto fresh = make_reduction(reduction_settings(*parts), {0, 1}, 0, 40);
    return load_state(*fresh, state, 0, 0.0);
  };
  EXPECT_TRUE(with_indices({3, 39}).ok());
  for (const std::vector<std::int64_t>& bad :
       {std::vector<std::int64_t>{7, 3}, {3, 3}, {3, 40}, {3, -1}, {3}}) {
    const auto loaded = with_indices(bad);
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, Errc::bad_input);
    EXPECT_NE(loaded.error().message.find("resume from another"), std::string::npos);
  }
}

// A rank by itself: what it sends is lost, its gradients come, its timers fire, and one after the
// other everybody else dies.
class Lone : public Env {
 public:
  Lone(Rank rank, std::int32_t ranks, std::int64_t d) : rank_(rank), d_(d) {
    members_.alive.assign(static_cast<std::size_t>(ranks), true);
  }
  Rank rank() const override { return rank_; }
  const Membership& membership() const override { return members_; }
  Timestamp now() const override { return Timestamp(events_); }
  Rng& rng() override { return rng_; }
  void send(Rank, Stamp, Payload) override {}
  void compute(Step step, FrozenTensor) override { request_ = step; }
  void recycle(FrozenTensor) override {}
  void after(Duration, TimerId id) override { timers_.push_back(id); }
  void record(const Event&) override {}
  void finished() override {}

  void run(Role& role) {
    role.on_start(*this);
    for (; events_ < 60 && step(role); ++events_) {
    }
    (void)role.save();
  }

 private:
  bool step(Role& role) {
    if (request_) {
      Gradient gradient;
      gradient.step = *std::exchange(request_, std::nullopt);
      gradient.value = FrozenTensor::freeze(at::ones({d_}));
      role.on_gradient(*this, std::move(gradient));
      return true;
    }
    if (!timers_.empty()) {
      const TimerId id = timers_.front();
      timers_.pop_front();
      role.on_timer(*this, id);
      return true;
    }
    for (Rank other = 0; other < members_.world_size(); ++other)
      if (other != rank_ && members_.is_alive(other)) {
        members_.alive[static_cast<std::size_t>(other)] = false;
        role.on_peer_down(*this, other);
        return true;
      }
    return false;
  }

  const Rank rank_;
  const std::int64_t d_;
  Membership members_;
  Rng rng_{1};
  std::optional<Step> request_;
  std::deque<TimerId> timers_;
  std::int64_t events_ = 0;
};

// Roles of every pattern, in the middle of a run with messages in flight.
TEST(DamagedState, OfRolesIsRefusedWithoutThrowing) {
  const std::vector<sim::Keys> wirings = {
      {{"exchange", "aggregate"}},
      {{"exchange", "aggregate"}, {"compress", "top-k"}, {"density", "0.3"}},
      {{"exchange", "aggregate"},
       {"pack", "difference"},
       {"local_steps", "2"},
       {"outer", "nesterov"}},
      {{"exchange", "partial"}, {"activation", "solo"}},
      {{"exchange", "partial"},
       {"activation", "quorum"},
       {"compress", "top-k"},
       {"density", "0.3"}},
      {{"exchange", "gossip"},
       {"averaging", "symmetric"},
       {"compress", "top-k"},
       {"density", "0.3"},
       {"topology", "ring"}},
      {{"exchange", "gossip"}, {"overlap", "true"}, {"staleness", "1"}},
      {{"exchange", "gossip"}, {"overlap", "true"}, {"running_sums", "true"}},
      {{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}},
      {{"exchange", "group"}, {"staleness", "4"}},
      {{"exchange", "aggregate"}, {"hierarchy", "2"}},
      {{"exchange", "gossip"}, {"overlap", "true"}, {"local_steps", "3"}},
      {{"exchange", "server"}, {"rule", "gem"}, {"compress", "top-k"}, {"density", "0.3"}},
      {{"exchange", "server"}, {"rule", "downpour"}, {"servers", "2"}, {"local_steps", "2"}},
      {{"exchange", "server"}, {"rule", "easgd"}, {"synchronous", "true"}}};
  for (const sim::Keys& keys : wirings)
    for (const std::int64_t when : {15, 48}) {
      WorldConfig config;
      config.plan = sim::plan_of(keys);
      config.ranks = 4;
      config.dimension = 12;
      config.horizon = {20, 5};
      config.lr = 0.1;
      config.optimizer.momentum =
          sim::is_role(config.plan, "server") &&
                  !data_as<ServerSettings>(config.plan.settings).rule->uses_momentum
              ? 0
              : 0.9;
      RoleWorld world(config, [](Rank rank, Step, const at::Tensor& z) { return z - rank; });
      world.start();
      world.run_until(when);
      LrConfig rate;
      const auto parts = *make_parts(config.plan, config.horizon, *LrSchedule::make(rate),
                                     config.optimizer, config.ranks);
      const std::int32_t all = all_ranks_of(config.plan, config.ranks);
      for (Rank rank = 0; rank < all; ++rank) {
        SCOPED_TRACE(keys.back().first + "=" + keys.back().second + ", rank " +
                     std::to_string(rank) + ", event " + std::to_string(when));
        const auto load = [&](const StateDict& state) {
          ModelState model = world.model(rank);
          model.x = FrozenTensor::freeze(at::zeros({config.dimension}));
          const auto role = make_role(parts, rank, all, model);
          auto loaded = role->load(state);
          if (loaded.ok() && sim::is_role(config.plan, "server"))
            Lone(rank, all, config.dimension).run(*role);
          return loaded;
        };
        const StateDict state = world.saved(rank);
        ASSERT_TRUE(load(state).ok());
        EXPECT_GT(try_all(state, load), static_cast<int>(state.entries().size()) / 2);
      }
    }
}

// What no step could use is found at load, in every role: a phase that there is not, and state of a
// model of another size.
TEST(DamagedState, PhasesAndSizesAreCheckedByEveryRole) {
  const std::vector<sim::Keys> wirings = {
      {{"exchange", "aggregate"}},
      {{"exchange", "aggregate"}, {"pack", "difference"}, {"local_steps", "3"}},
      {{"exchange", "aggregate"}, {"hierarchy", "2"}},
      {{"exchange", "gossip"}, {"hierarchy", "2"}},
      {{"exchange", "partial"}, {"activation", "solo"}},
      {{"exchange", "gossip"}, {"overlap", "true"}},
      {{"exchange", "gossip"}, {"overlap", "true"}, {"local_steps", "3"}},
      {{"exchange", "gossip"},
       {"averaging", "symmetric"},
       {"compress", "top-k"},
       {"density", "0.3"},
       {"topology", "ring"}},
      {{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}},
      {{"exchange", "group"}, {"staleness", "4"}},
      {{"exchange", "server"}, {"rule", "easgd"}}};
  for (const sim::Keys& keys : wirings)
    for (const std::string optimizer : {"sgd", "adam"}) {
      WorldConfig config;
      config.plan = sim::plan_of(keys);
      config.ranks = 4;
      config.dimension = 12;
      config.horizon = {20, 5};
      config.lr = 0.1;
      config.optimizer.name = optimizer;
      config.optimizer.momentum = optimizer == "sgd" ? 0.9 : 0;
      RoleWorld world(config, [](Rank rank, Step, const at::Tensor& z) { return z - rank; });
      world.start();
      int changed = 0;
      while (world.event_count() < 60 && world.step()) {
        const Rank rank = static_cast<Rank>(world.event_count() % 4);
        const StateDict state = world.saved(rank);
        for (const auto& [name, value] : state.entries()) {
          const bool is_phase = name == "phase" || name == "head.phase";
          const auto* tensor = std::get_if<at::Tensor>(&value);
          const bool is_of_the_model = name.find("optimizer.") != std::string::npos ||
                                       name == "anchor" || name == "gradient" ||
                                       name == "given.x" || name == "all_reduce.data" ||
                                       name == "all_reduce.sum";
          if (!is_phase && (tensor == nullptr || !is_of_the_model)) continue;
          SCOPED_TRACE(keys.back().second + ", " + optimizer + ", rank " + std::to_string(rank) +
                       ", event " + std::to_string(world.event_count()) + ", " + name);
          const auto load = [&, name = name](const StateValue& other) {
            StateDict damaged_state = state;
            damaged_state.put(name, other);
            ModelState model = world.model(rank);
            return make_role(world.parts(), rank, all_ranks_of(config.plan, 4), model)
                ->load(damaged_state);
          };
          if (is_phase) {
            for (const std::int64_t phase : {-1, 4, 100}) EXPECT_FALSE(load(phase).ok()) << phase;
            continue;
          }
          ASSERT_EQ(tensor->numel(), config.dimension);
          EXPECT_FALSE(load(at::cat({*tensor, *tensor})).ok());
          EXPECT_FALSE(load(tensor->to(at::kDouble)).ok());
          ++changed;
        }
      }
      EXPECT_GT(changed, 10) << keys.back().second;
    }
}

std::int64_t accepted_of(const std::vector<std::int64_t>& values,
                         const std::function<Expected<void>(std::int64_t)>& load) {
  std::int64_t accepted = 0;
  for (const std::int64_t value : values) {
    const Expected<void> loaded = load(value);
    if (!loaded.ok()) {
      EXPECT_EQ(loaded.error().code, Errc::bad_input);
      EXPECT_EQ(loaded.error().message.find('\n'), std::string::npos);
    }
    accepted += loaded.ok();
  }
  return accepted;
}

// A commit waits for at least one receipt, and for at most one of each server.
TEST(DamagedState, CommitsWaitForOneToAllServers) {
  OutstandingCommits outstanding;
  outstanding.send(4, {7, 8}, 3);
  StateDict state = save_state(outstanding, 0);
  const auto load = [&](std::int64_t due) {
    state.put("4.due", due);
    return load_state(outstanding, state, 3);
  };
  EXPECT_EQ(accepted_of({1, 2, 3}, load), 3);
  EXPECT_EQ(accepted_of({-1, 0, 4, 1000}, load), 0);
  ASSERT_TRUE(load(2).ok());
  EXPECT_FALSE(outstanding.on_receipt(4, true));
  EXPECT_TRUE(outstanding.on_receipt(4, true));
}

TEST(DamagedState, OnlyClientsWaitAndEachOnce) {
  const std::vector<Rank> clients = {2, 3, 5};
  ServiceQueue queue;
  for (const Rank client : {2, 5}) {
    ServiceRequest request;
    request.client = client;
    queue.push(std::move(request));
  }
  StateDict state = save_state(queue, std::nullopt, clients);
  const auto second_is = [&](std::int64_t client) {
    state.put("1.client", client);
    ServiceQueue loaded;
    return load_state(loaded, state, std::nullopt, clients);
  };
  EXPECT_EQ(accepted_of({5, 3}, second_is), 2);
  EXPECT_EQ(accepted_of({2, 4, 6, 0, -1, std::int64_t{1} << 40}, second_is), 0);
}

TEST(DamagedState, RowsAreWholeAndOfClients) {
  const std::vector<Rank> clients = {2, 3, 5};
  CriticalSections sections;
  sections.open(3, 11);
  const auto load = [&](const std::vector<std::int64_t>& rows) {
    StateDict state = save_state(sections, clients);
    state.put_list("open", rows);
    CriticalSections loaded;
    return load_state(loaded, state, clients);
  };
  for (const std::vector<std::int64_t>& good :
       {std::vector<std::int64_t>{}, {3, 11, 1}, {5, 9, 2, 2, 8, 1}})
    EXPECT_TRUE(load(good).ok());
  for (const std::vector<std::int64_t>& bad : {std::vector<std::int64_t>{3},
                                               {3, 11},
                                               {3, 11, 1, 2},
                                               {4, 11, 1},
                                               {-1, 11, 1},
                                               {3, 11, 1, 3, 12, 2}}) {
    const auto loaded = load(bad);
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, Errc::bad_input);
    EXPECT_NE(loaded.error().message.find("'open'"), std::string::npos) << loaded.error().message;
  }
}

TEST(DamagedState, ResidualsAreVectorsOfTheModel) {
  ErrorFeedback feedback({});
  StateDict state;
  state.put("residual", at::ones({5}));
  ASSERT_TRUE(load_state(feedback, state, 5).ok());
  EXPECT_TRUE(at::equal(feedback.residual(), at::ones({5})));
  for (const at::Tensor& bad : {at::ones({6}), at::ones({5}, at::kDouble), at::ones({1, 5})}) {
    state.put("residual", bad);
    const auto loaded = load_state(feedback, state, 5);
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, Errc::bad_input);
  }
}

}  // namespace damaged_state_test
}  // namespace grapevine
