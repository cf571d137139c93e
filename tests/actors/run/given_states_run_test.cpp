// A state goes to a rank that returns, part after part, and something happens at each part: in
// virtual time, with the shipped actors.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/record/state_stream.hpp"
#include "actors/run/models/model_transfer.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace given_states_run_test {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using virtual_run_test::expect_all_accounted;
using virtual_run_test::fresh_folder;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr std::int32_t kRanks = 4;
constexpr Rank kReturning = 2;
// Ranks that share one model, push-sum, pairs, and a parameter server.
const std::vector<std::string> kExchanges = {"ar", "sgp", "ad-psgd", "gem"};

// What of one state goes from one rank to another.
struct Transfer {
  std::int64_t total = 0;
  std::size_t sent = 0, answered = 0;  // parts
  std::vector<char> bytes, arrived;
  std::vector<std::int64_t> ends;  // of the parts that were sent
  std::vector<Timestamp> times;    // at which parts arrived
};

// Sees all parts and the answers to them.
class StateWatch : public NetworkWatch {
 public:
  using Ends = std::tuple<Rank, Rank, std::int64_t>;  // donor, taker, transfer

  void on_sent(Timestamp at, const Envelope& message, std::uint64_t) override {
    const auto* chunk = part_of(message);
    if (chunk == nullptr) {
      if (!open().empty() && std::holds_alternative<Marker>(message.payload)) ++markers_meanwhile;
      if (!open().empty() && !is_answer(message)) ++others_meanwhile;
      return;
    }
    Transfer& transfer = transfers_[{message.from, message.to, chunk->transfer}];
    EXPECT_EQ(chunk->offset, static_cast<std::int64_t>(transfer.bytes.size())) << to_seconds(at);
    transfer.total = chunk->total;
    append(transfer.bytes, *chunk);
    transfer.ends.push_back(static_cast<std::int64_t>(transfer.bytes.size()));
    most = std::max(most, ++transfer.sent - transfer.answered);
  }

  void on_delivered(Timestamp at, const Envelope& message) override {
    expect_new_number(message);
    if (const auto* chunk = part_of(message)) {
      Transfer& transfer = transfers_[{message.from, message.to, chunk->transfer}];
      append(transfer.arrived, *chunk);
      transfer.times.push_back(at);
    }
    const auto* answer = std::get_if<StateReceived>(&message.payload);
    if (answer == nullptr) return;
    ++answers;
    Transfer& transfer = transfers_[{message.to, message.from, answer->transfer}];
    const auto end = std::find(transfer.ends.begin(), transfer.ends.end(), answer->bytes);
    EXPECT_TRUE(end != transfer.ends.end()) << answer->bytes << " bytes were never sent";
    transfer.answered = static_cast<std::size_t>(end - transfer.ends.begin()) + 1;
  }

  void on_detached(Timestamp, Rank rank) override { died_.insert(rank); }

  // Of ranks that live: parts are still to be sent, or to be answered.
  std::vector<Ends> open() const {
    std::vector<Ends> found;
    for (const auto& [ends, transfer] : transfers_)
      if (died_.count(std::get<0>(ends)) == 0 && !lost_its_life(ends) &&
          (transfer.arrived.size() < static_cast<std::size_t>(transfer.total) ||
           transfer.answered < transfer.sent))
        found.push_back(ends);
    return found;
  }
  // All takers of a state receive the same bytes, and those that were sent.
  void expect_equal_bytes() const {
    std::map<std::pair<Rank, std::int64_t>, std::vector<char>> states;
    for (const auto& [ends, transfer] : transfers_) {
      const auto& [donor, taker, view] = ends;
      EXPECT_TRUE(
          std::equal(transfer.arrived.begin(), transfer.arrived.end(), transfer.bytes.begin()));
      const std::vector<char>& state =
          states.emplace(std::pair(donor, view), transfer.bytes).first->second;
      const std::size_t both = std::min(state.size(), transfer.bytes.size());
      EXPECT_TRUE(std::equal(state.begin(), state.begin() + static_cast<std::ptrdiff_t>(both),
                             transfer.bytes.begin()));
    }
  }
  const std::map<Ends, Transfer>& transfers() const { return transfers_; }

  // A rank's return ends what its former life was to receive.
  void on_returned(Timestamp, Rank rank) override {
    died_.erase(rank);
    for (const auto& [ends, transfer] : transfers_)
      if (std::get<0>(ends) == rank || std::get<1>(ends) == rank) former_.insert(ends);
  }

  std::size_t most = 0;  // parts without an answer, of one transfer
  std::int64_t answers = 0;
  std::int64_t markers_meanwhile = 0, others_meanwhile = 0;  // messages amid a transfer

 private:
  // Those of a rank that returns are larger than those of its former life.
  void expect_new_number(const Envelope& message) {
    if (message.stamp.sequence == 0) return;  // a marker has none
    std::uint64_t& newest = numbers_[{message.from, message.to}];
    EXPECT_GT(message.stamp.sequence, newest) << message.from << " to " << message.to;
    newest = message.stamp.sequence;
  }
  static const StateChunk* part_of(const Envelope& message) {
    const auto* chunk = std::get_if<StateChunk>(&message.payload);
    const bool of_view = chunk != nullptr && chunk->transfer > 0 && !is_of_model(*chunk);
    return of_view ? chunk : nullptr;
  }
  static bool is_answer(const Envelope& message) {
    return std::holds_alternative<StateReceived>(message.payload);
  }
  static void append(std::vector<char>& bytes, const StateChunk& chunk) {
    const auto* data = static_cast<const char*>(chunk.data.raw());
    bytes.insert(bytes.end(), data, data + chunk.data.numel());
  }
  bool lost_its_life(const Ends& ends) const {
    return died_.count(std::get<1>(ends)) > 0 || former_.count(ends) > 0;
  }

  std::map<Ends, Transfer> transfers_;
  std::map<std::pair<Rank, Rank>, std::uint64_t> numbers_;  // the newest of messages
  std::set<Rank> died_;
  std::set<Ends> former_;
};

struct Outcome {
  RunResult result;
  std::shared_ptr<StateWatch> watch = std::make_shared<StateWatch>();
};

Scenario make_scenario(const std::string& preset) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.ranks = kRanks;
  scenario.dimension = 800;
  scenario.steps = 20;
  scenario.lr = 0.02;
  return scenario;
}

// A rank dies and returns. Its state has more parts than three windows, which take longer than a
// step.
RunConfig make_config(const Scenario& scenario) {
  RunConfig config = make_run(scenario);
  config.state_part_bytes = 256;
  config.min_workers = 1;
  SimConfig sim;
  sim.world_size = config.world_size();
  sim.network.link = {1e-3, 1e-6};
  config.world = std::make_shared<VirtualWorld>();
  config.world->network = std::make_shared<SimTransport>(sim, [] { return Timestamp{0}; });
  config.world->deadline = std::chrono::seconds(60);
  config.transport = config.world->network;
  config.deaths = {{kReturning, milliseconds(60)}};
  config.returns = {{kReturning, milliseconds(90)}};
  return config;
}

Outcome run_watched(RunConfig config, std::shared_ptr<Quiet> observer = std::make_shared<Quiet>()) {
  Outcome outcome;
  config.world->network->set_watch(outcome.watch);
  outcome.result = run_virtual(std::move(config), std::move(observer));
  return outcome;
}

void expect_sound(const std::string& preset, const Outcome& outcome) {
  const RunResult& result = outcome.result;
  ASSERT_FALSE(result.error) << result.error->message;
  expect_all_accounted(result);
  outcome.watch->expect_equal_bytes();
  EXPECT_LE(outcome.watch->most, StateStream::kWindow);
  EXPECT_TRUE(outcome.watch->open().empty()) << "a state has not arrived";
  const auto remaining = static_cast<double>(kRanks - static_cast<int>(result.lost.size()));
  if (preset != "gem") {
    EXPECT_NEAR(result.weight_sum, remaining, 1e-6);
  }
  if (preset == "ar") {
    EXPECT_EQ(result.consensus_distance, 0);
  }
}

// The first state that goes to a rank, as to the one that returns in a run in which nothing else
// happens.
struct Undisturbed {
  Rank donor = -1;
  std::vector<Timestamp> parts;  // when they arrive
};

Undisturbed first_state_of(Rank taker, const Outcome& outcome) {
  for (const auto& [ends, transfer] : outcome.watch->transfers())
    if (std::get<1>(ends) == taker) return {std::get<0>(ends), transfer.times};
  ADD_FAILURE() << "no state went to rank " << taker;
  return {};
}

Undisturbed undisturbed(const std::string& preset) {
  const Outcome outcome = run_watched(make_config(make_scenario(preset)));
  expect_sound(preset, outcome);
  EXPECT_EQ(outcome.result.returned, 1);
  EXPECT_EQ(outcome.watch->most, StateStream::kWindow);
  for (const auto& [ends, transfer] : outcome.watch->transfers()) {
    const auto& [donor, taker, view] = ends;
    if (taker != kReturning) continue;
    EXPECT_EQ(transfer.bytes, transfer.arrived);
    EXPECT_GT(transfer.sent, 3 * StateStream::kWindow);
    EXPECT_EQ(transfer.answered, transfer.sent);
    return {donor, transfer.times};
  }
  ADD_FAILURE() << preset << ": no state went to the rank that returns";
  return {};
}

// Just after a part has arrived, before anything else happens at the ranks.
Duration just_after(Timestamp part) { return part + nanoseconds(1); }

TEST(GivenStatesRun, TheRankThatTakesItDiesAtEachPart) {
  for (const std::string& preset : kExchanges) {
    const Undisturbed usual = undisturbed(preset);
    for (std::size_t part = 0; part < usual.parts.size() && !HasFailure(); ++part) {
      SCOPED_TRACE(testing::Message() << preset << ", part " << part);
      const bool returns = part % 2 == 1;
      RunConfig config = make_config(make_scenario(preset));
      const Duration at = just_after(usual.parts[part]);
      config.deaths.push_back({kReturning, at});
      if (returns) config.returns.push_back({kReturning, at + milliseconds(2)});
      const Outcome outcome = run_watched(std::move(config));
      expect_sound(preset, outcome);
      EXPECT_EQ(outcome.result.returned, returns ? 2 : 1);
      EXPECT_EQ(outcome.result.lost.size(), returns ? 0U : 1U);
    }
  }
}

// The next view has another donor.
TEST(GivenStatesRun, TheRankThatGivesItDiesAtEachPart) {
  for (const std::string& preset : kExchanges) {
    const Undisturbed usual = undisturbed(preset);
    for (std::size_t part = 0; part < usual.parts.size() && !HasFailure(); ++part) {
      SCOPED_TRACE(testing::Message() << preset << ", part " << part);
      RunConfig config = make_config(make_scenario(preset));
      config.deaths.push_back({usual.donor, just_after(usual.parts[part])});
      const Outcome outcome = run_watched(std::move(config));
      expect_sound(preset, outcome);
      EXPECT_EQ(outcome.result.lost, std::vector<Rank>{usual.donor});
      // The parts of the last window may still arrive.
      const bool lacks_some = part + 1 + StateStream::kWindow < usual.parts.size();
      EXPECT_GE(outcome.watch->transfers().size(), lacks_some ? 2U : 1U);
    }
  }
}

// That view waits for the state.
TEST(GivenStatesRun, AnotherRankDiesAtEachPart) {
  for (const std::string& preset : kExchanges) {
    const Undisturbed usual = undisturbed(preset);
    for (std::size_t part = 0; part < usual.parts.size() && !HasFailure(); ++part) {
      SCOPED_TRACE(testing::Message() << preset << ", part " << part);
      RunConfig config = make_config(make_scenario(preset));
      const Rank other = usual.donor == 1 ? 3 : 1;
      config.deaths.push_back({other, just_after(usual.parts[part])});
      const Outcome outcome = run_watched(std::move(config));
      expect_sound(preset, outcome);
      EXPECT_EQ(outcome.result.lost, std::vector<Rank>{other});
    }
  }
}

// The last checkpoint is cut amid the transfer, and another run continues it.
TEST(GivenStatesRun, TheRunStopsWithACheckpointAtEachPart) {
  std::int64_t amid = 0;
  for (const std::string& preset : kExchanges) {
    const Undisturbed usual = undisturbed(preset);
    for (std::size_t part = 0; part < usual.parts.size() && !HasFailure(); part += 3) {
      SCOPED_TRACE(testing::Message() << preset << ", part " << part);
      Scenario scenario = make_scenario(preset);
      scenario.folder = fresh_folder("given-state-" + preset);
      RunConfig config = make_config(scenario);
      config.checkpoint_every_epochs = 0;
      config.stop_at = just_after(usual.parts[part]);
      const Outcome outcome = run_watched(std::move(config));
      ASSERT_FALSE(outcome.result.error) << outcome.result.error->message;
      EXPECT_LE(outcome.watch->most, StateStream::kWindow);
      ASSERT_TRUE(outcome.result.interrupted);
      amid += outcome.watch->markers_meanwhile;
      auto checkpoint = read_checkpoint(scenario.folder);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
      EXPECT_TRUE(checkpoint->lost.empty());
      RunConfig again = make_config(scenario);
      again.deaths.clear();
      again.returns.clear();
      again.resume = *std::move(checkpoint);
      expect_sound(preset, run_watched(std::move(again)));
    }
  }
  EXPECT_GT(amid, 0) << "no cut was amid a transfer: nothing was tested";
}

// The others take their last steps about when the rank comes back. It receives its state, or comes
// too late.
TEST(GivenStatesRun, TheRunEndsAtAnyMoment) {
  for (const std::string& preset : kExchanges) {
    RunConfig without = make_config(make_scenario(preset));
    without.returns.clear();
    const std::shared_ptr<VirtualWorld> world = without.world;
    expect_sound(preset, run_watched(std::move(without)));
    std::int64_t returned = 0;
    for (int before = 0; before <= 40 && !HasFailure(); before += 2) {
      SCOPED_TRACE(testing::Message() << preset << ", " << before << " ms before the end");
      RunConfig config = make_config(make_scenario(preset));
      config.returns.front().at = world->now - milliseconds(before);
      const Outcome outcome = run_watched(std::move(config));
      expect_sound(preset, outcome);
      returned += outcome.result.returned;
    }
    EXPECT_GT(returned, 0) << "all came too late: nothing was tested";
  }
}

// Meanwhile no rank takes a step: the others wait for the one that returns. The timeouts are longer
// and shorter than the time after which a wait is unusual.
TEST(GivenStatesRun, AStateThatArrivesIsProgress) {
  for (const Duration timeout : {std::chrono::seconds(8), std::chrono::seconds(20)}) {
    SCOPED_TRACE(testing::Message() << "timeout " << to_seconds(timeout) << " s");
    RunConfig config = make_config(make_scenario("ar"));
    SimConfig sim;
    sim.world_size = config.world_size();
    sim.network.link = {0.2, 1e-6};  // a step takes a few messages, one after the other,
    config.state_part_bytes = 4;     // and a state hundreds of windows
    config.world->network = std::make_shared<SimTransport>(sim, [] { return Timestamp{0}; });
    config.world->deadline = std::chrono::seconds(600);
    config.transport = config.world->network;
    config.timeout = timeout;
    config.deaths = {{kReturning, std::chrono::seconds(5)}};
    config.returns = {{kReturning, std::chrono::seconds(7)}};
    const Outcome outcome = run_watched(std::move(config));
    expect_sound("ar", outcome);
    EXPECT_EQ(outcome.result.returned, 1);
    const std::vector<Timestamp> parts = first_state_of(kReturning, outcome).parts;
    ASSERT_FALSE(parts.empty());
    EXPECT_GT(parts.back() - parts.front(), 2 * timeout) << "nothing was tested";
  }
}

// ---- to a server of a new wiring ----

constexpr Rank kServer = kRanks;  // of two, the one that remains

RunConfig make_config_of_fewer_servers() {
  Scenario scenario = make_scenario("gem");
  scenario.steps = 40;
  scenario.set = {{"servers", "2"}};
  RunConfig config = make_config(scenario);
  config.deaths.clear();
  config.returns.clear();
  config.change =
      [scenario](const LiveSettings& settings) -> Expected<std::shared_ptr<const SharedParts>> {
    Scenario changed = scenario;
    if (const auto servers = settings.find("wiring.servers"); servers != settings.end())
      changed.set = {{"servers", servers->second}};
    return make_run(changed).parts;
  };
  config.schedule = {{1, {{"wiring.servers", "1"}}}};
  return config;
}

// The other server has no place in the next view, and lives: nobody reports its end.
TEST(GivenStatesRun, TheRankThatGivesItToTheServerThatRemainsDiesAtEachPart) {
  const auto observer = std::make_shared<Quiet>();
  const Outcome usual = run_watched(make_config_of_fewer_servers(), observer);
  expect_sound("gem", usual);
  EXPECT_TRUE(observer->warnings.empty()) << observer->warnings.front();
  const Undisturbed state = first_state_of(kServer, usual);
  EXPECT_GT(state.parts.size(), 3 * StateStream::kWindow);
  for (std::size_t part = 0; part < state.parts.size() && !HasFailure(); ++part) {
    SCOPED_TRACE(testing::Message() << "part " << part);
    RunConfig config = make_config_of_fewer_servers();
    config.deaths = {{state.donor, just_after(state.parts[part])}};
    const Outcome outcome = run_watched(std::move(config));
    expect_sound("gem", outcome);
    EXPECT_EQ(outcome.result.lost, std::vector<Rank>{state.donor});
  }
}

// Rank 0 dies amid a round, whose sum some of the others have, and some lack.
RunConfig make_losing(const std::string& preset, Duration at) {
  Scenario scenario = make_scenario(preset);
  scenario.set = {{"all_reduce", "ring"}};
  RunConfig config = make_config(scenario);
  config.deaths = {{0, at}};
  config.returns.clear();
  return config;
}

struct Behind {
  std::set<Rank> ranks;          // that take the state of one that has the sum
  std::vector<Timestamp> parts;  // when it arrives at one of them
};

Behind ranks_behind(const std::string& preset, Duration at) {
  const Outcome outcome = run_watched(make_losing(preset, at));
  expect_sound(preset, outcome);
  Behind behind;
  for (const auto& [ends, transfer] : outcome.watch->transfers()) {
    behind.ranks.insert(std::get<1>(ends));
    behind.parts = transfer.times;
  }
  return behind;
}

// Those that remain have the roles of the view before the last one, whose members are others than
// those of the last one: each continues with its own count of gradients.
TEST(GivenStatesRun, AllRanksThatHaveItDieAtEachPart) {
  for (const std::string preset : {"eager-solo", "eager-majority"}) {
    int found = 0;
    for (int at = 40; at <= 240 && found < 4 && !HasFailure(); ++at) {
      const Behind behind = ranks_behind(preset, milliseconds(at));
      if (!behind.ranks.empty()) ++found;
      for (std::size_t part = 0; part < behind.parts.size() && !HasFailure(); ++part) {
        SCOPED_TRACE(testing::Message()
                     << preset << ", rank 0 dies at " << at << " ms, part " << part);
        RunConfig config = make_losing(preset, milliseconds(at));
        for (Rank rank = 1; rank < kRanks; ++rank)
          if (behind.ranks.count(rank) == 0)
            config.deaths.push_back({rank, just_after(behind.parts[part])});
        const Outcome outcome = run_watched(std::move(config));
        expect_sound(preset, outcome);
        EXPECT_EQ(outcome.result.lost.size(), kRanks - behind.ranks.size());
        EXPECT_EQ(outcome.result.consensus_distance, 0);
      }
    }
    EXPECT_GT(found, 0) << preset << ": no rank was behind: nothing was tested";
  }
}

// Sees the messages of gossip that come while a state does, and which of their vectors exist.
class SumsWatch : public StateWatch {
 public:
  void on_delivered(Timestamp at, const Envelope& message) override {
    StateWatch::on_delivered(at, message);
    const auto* sum = std::get_if<Share>(&message.payload);
    if (sum == nullptr || message.to != kReturning || open().empty()) return;
    ++sums;
    const auto& vector = sum->x.read().getIntrusivePtr();
    vectors_.insert_or_assign(vector.get(), Vector(vector));
    const auto in_memory = std::count_if(vectors_.begin(), vectors_.end(),
                                         [](const auto& v) { return !v.second.expired(); });
    most_in_memory = std::max<std::int64_t>(most_in_memory, in_memory);
  }

  std::int64_t sums = 0;
  std::int64_t most_in_memory = 0;

 private:
  using Vector = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::map<const c10::TensorImpl*, Vector> vectors_;
};

// Each of the others has its newest sum, and one is on its way; the rank keeps one of each.
TEST(GivenStatesRun, RunningSumsOfOthersTakeNoMemoryMeanwhile) {
  Scenario scenario = make_scenario("osgp");
  scenario.set = {{"running_sums", "true"}};
  scenario.steps = 120;
  RunConfig config = make_config(scenario);
  config.state_part_bytes = 32;
  SimConfig sim;
  sim.world_size = config.world_size();
  sim.network.link = {20e-3, 1e-6};  // many rounds for one state
  config.transport = config.world->network =
      std::make_shared<SimTransport>(sim, [] { return Timestamp{0}; });
  const auto watch = std::make_shared<SumsWatch>();
  config.world->network->set_watch(watch);
  const RunResult result = run_virtual(std::move(config), std::make_shared<Quiet>());
  ASSERT_FALSE(result.error) << result.error->message;
  expect_all_accounted(result);
  EXPECT_EQ(result.returned, 1);
  EXPECT_NEAR(result.weight_sum, kRanks, 1e-6) << "a sum is lost";
  EXPECT_GT(watch->sums, 20) << "the state came soon: nothing was tested";
  EXPECT_LE(watch->most_in_memory, 3 * (kRanks - 1));
}

// Ranks that do not wait for the one that takes the state train on between its parts.
TEST(GivenStatesRun, OtherMessagesGoBetweenTheParts) {
  const Outcome outcome = run_watched(make_config(make_scenario("ad-psgd")));
  expect_sound("ad-psgd", outcome);
  EXPECT_GT(outcome.watch->others_meanwhile, 0);
}

// Only the answers are more: one for each part.
TEST(GivenStatesRun, EachPartIsAnsweredOnce) {
  for (const std::string& preset : kExchanges) {
    SCOPED_TRACE(preset);
    std::vector<std::int64_t> answers;
    for (const std::int64_t part_bytes : {std::int64_t{256}, std::int64_t{1} << 20}) {
      RunConfig config = make_config(make_scenario(preset));
      config.state_part_bytes = part_bytes;
      const Outcome outcome = run_watched(std::move(config));
      expect_sound(preset, outcome);
      std::size_t parts = 0;
      for (const auto& [ends, transfer] : outcome.watch->transfers()) parts += transfer.sent;
      EXPECT_EQ(outcome.watch->answers, static_cast<std::int64_t>(parts));
      answers.push_back(outcome.watch->answers);
    }
    EXPECT_GT(answers.front(), answers.back());
  }
}

}  // namespace given_states_run_test
}  // namespace grapevine
