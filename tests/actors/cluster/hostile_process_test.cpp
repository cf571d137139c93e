// A process that is none of the run's reaches its actors with every message that exists: it ends
// nothing but its own connection, and the run goes on to its end.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <limits>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/rendezvous.hpp"
#include "actors/run/models/evaluator.hpp"
#include "actors/run/supervisor.hpp"
#include "messages/codec.hpp"
#include "tests/log_lines.hpp"

namespace grapevine {
namespace hostile_process_test {

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it

// Bytes that stand for a tensor, or for a state, of another size than they have.
struct LyingTensor {
  std::int64_t elements = 0;
};
caf::error inspect(caf::serializer& sink, LyingTensor& tensor) {
  Envelope envelope;
  envelope.payload = Share{0, 0, FrozenTensor::freeze(at::zeros({1}))};
  EncodedHeader header = encode_header(envelope);
  // The descriptor ends the header: bytes, then the only dimension.
  const std::uint64_t bytes = 4 * static_cast<std::uint64_t>(tensor.elements);
  std::memcpy(header.data() + header.size() - 16, &bytes, sizeof bytes);
  std::memcpy(header.data() + header.size() - 8, &tensor.elements, sizeof tensor.elements);
  auto size = static_cast<std::uint32_t>(header.size());
  if (auto error = sink(size)) return error;
  return sink.apply_raw(header.size(), header.data());
}
caf::error inspect(caf::deserializer&, LyingTensor&) { return caf::sec::runtime_error; }

struct LyingReport {
  LyingTensor figure;
};
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LyingReport& m) {
  RankReport report;
  DoubleListBits seconds(report.step_seconds);
  std::uint32_t entries = 1;
  std::string name = "x";
  std::uint8_t kind = 0;
  return f(caf::meta::type_name("grapevine::RankReport"), report.rank, report.step, report.offer,
           report.ledger, seconds.bits, entries, name, kind, m.figure);
}

// A report whose measures are no state.
struct LyingMeasures {
  std::uint32_t entries = 0;
  std::uint8_t kind = 0;
};
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LyingMeasures& m) {
  RankReport report;
  DoubleListBits seconds(report.step_seconds);
  std::string name = "x";
  return f(caf::meta::type_name("grapevine::RankReport"), report.rank, report.step, report.offer,
           report.ledger, seconds.bits, m.entries, name, m.kind);
}

class Heard : public RunObserver {
 public:
  void on_step(const StepReport& report) override { steps.push_back(report.rank); }
  void on_figures(const RankFigures& figures) override { figures_of.push_back(figures.rank); }
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_end(RunResult result) override { end.set_value(std::move(result)); }

  std::vector<Rank> steps, figures_of;  // before end alone
  std::promise<RunResult> end;
};

// One rank of a run: does nothing but what ends it in order.
PeerActor::behavior_type stand_in(PeerActor::pointer self, Rank rank, SupervisorActor supervisor) {
  return {[](StartTraining) {},
          [](GradientPart&) {},
          [](Gradient&) {},
          [](Envelope&) {},
          [](TimerFired) {},
          [](PeerLost) {},
          [](const TakeSnapshot&) {},
          [=](Collect collect) {
            RankReport report;
            report.rank = rank;
            report.step = 1;
            if (collect.with_model) report.z = FrozenTensor::freeze(at::ones({4}));
            self->send(supervisor, std::move(report));
          },
          [](FlushTrace) {},
          [](StallOver) {},
          [](const HoldForView&) {},
          [](AskTraffic) {},
          [](CloseView) {},
          [](const InstallView&) {},
          [](QueryWaits) {},
          [](const CheckSettings&) {},
          [](const PartStored&) {}};
}

class HostileProcess : public testing::Test {
 protected:
  HostileProcess() {
    configure_for_cluster(config_, std::chrono::seconds(10));
    configure_for_cluster(hostile_config_, std::chrono::seconds(10));
    hostile_config_.add_message_type<LyingReport>("grapevine::RankReport");
    hostile_config_.add_message_type<LyingMeasures>("grapevine::RankReport");
    system_ = std::make_unique<caf::actor_system>(config_);
    hostile_ = std::make_unique<caf::actor_system>(hostile_config_);
    SupervisorConfig config;
    config.ranks = 2;
    config.parameters = 4;
    config.buffers = 0;
    config.observer = heard_;
    supervisor_ = system_->spawn(supervisor, config);
    BeginRun crew;
    for (Rank rank = 0; rank < 2; ++rank)
      crew.peers.push_back(system_->spawn(stand_in, rank, supervisor_));
    peers_ = crew.peers;
    caf::anon_send(supervisor_, crew);
    const auto port = system_->middleman().publish(supervisor_, 0, "127.0.0.1");
    EXPECT_TRUE(port);
    const auto found = dial<SupervisorActor>(
        *hostile_,
        {"it", "127.0.0.1", port ? *port : std::uint16_t{0}, std::chrono::seconds(30), nullptr});
    EXPECT_TRUE(found.ok());
    if (found) victim_ = caf::actor_cast<caf::actor>(*found);
  }
  ~HostileProcess() override {
    victim_ = nullptr;
    for (const PeerActor& peer : peers_) caf::anon_send_exit(peer, caf::exit_reason::user_shutdown);
    peers_.clear();
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
    supervisor_ = SupervisorActor{};
  }

  template <class Message>
  void attack(Message message) {
    caf::anon_send(victim_, std::move(message));
  }

  // The last message of the hostile process is accepted: a step in the name of rank 1.
  RunResult end_in_order() {
    for (Rank rank = 0; rank < 2; ++rank) {
      StepReport step;
      step.rank = rank;
      caf::anon_send(supervisor_, step);
      caf::anon_send(supervisor_, RankFinished{rank});
    }
    auto end = heard_->end.get_future();
    if (end.wait_for(kDeadline) == std::future_status::ready) return end.get();
    ADD_FAILURE() << "the run does not end";
    return {};
  }
  // Until what was sent before has been dealt with: messages of one sender keep their order.
  void await_victim() {
    caf::scoped_actor self{*hostile_};
    self->monitor(victim_);
    self->send(victim_, StepReport{});
    self->receive([](const caf::down_msg&) { ADD_FAILURE() << "it is gone"; },
                  caf::after(std::chrono::seconds(2)) >> [] {});
  }

  const LogLines log_;  // outlives the actors
  caf::actor_system_config config_, hostile_config_;
  std::unique_ptr<caf::actor_system> system_, hostile_;
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  SupervisorActor supervisor_;
  std::vector<PeerActor> peers_;
  caf::actor victim_;  // as the hostile process knows it
};

TEST_F(HostileProcess, RanksOutsideTheRunAreIgnored) {
  for (const Rank rank : {-1, 2, 1 << 28, std::numeric_limits<Rank>::max()}) {
    StepReport step;
    step.rank = rank;
    attack(step);
    attack(RankFinished{rank});
    RankFigures figures;
    figures.rank = rank;
    attack(figures);
    figures.rank = 0;
    figures.sent_bytes[rank] = 1;
    attack(figures);
    RankReport report;
    report.rank = rank;
    attack(report);
    attack(ProcessClosed{rank});
  }
  EXPECT_TRUE(log_.wait_for({"ignored a message that no process of this run sends"}))
      << log_.text();
  await_victim();
  const RunResult result = end_in_order();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(result.steps, (std::vector<Step>{1, 1}));
  EXPECT_TRUE(heard_->figures_of.empty());
  for (const Rank rank : heard_->steps) EXPECT_TRUE(rank == 0 || rank == 1) << rank;
}

// Which CAF by itself prints, each with its content.
TEST_F(HostileProcess, MessagesThatAnActorDoesNotTakeHaveOneLine) {
  testing::internal::CaptureStdout();
  const std::vector<std::string> line = {"ignored a message that the actor 'supervisor'"};
  // The line has a limit for the whole process: others may have had it before.
  for (int i = 0; i < 30 && log_.count(line) == 0; ++i) {
    for (int message = 0; message < 50; ++message) {
      attack(Ping{});
      attack(RunEnded{true, {Errc::failed, "text of another process"}, false, ""});
    }
    await_victim();
  }
  EXPECT_GE(log_.count(line), 1U) << log_.text();
  const RunResult result = end_in_order();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_LE(log_.count(line), 10U) << log_.text();
  EXPECT_EQ(testing::internal::GetCapturedStdout().find("unexpected"), std::string::npos);
}

TEST_F(HostileProcess, SizesThatAreNotThereAreNotBelieved) {
  attack(LyingReport{{std::int64_t{1} << 34}});  // 2^36 bytes
  attack(LyingReport{{std::int64_t{1} << 61}});  // 2^63 bytes
  attack(LyingReport{{std::int64_t{1} << 28}});
  attack(LyingReport{{-1}});
  attack(LyingMeasures{std::numeric_limits<std::uint32_t>::max(), 3});
  attack(LyingMeasures{1, 0});
  attack(LyingMeasures{1, 200});
  // The line has a limit for the whole process: others may have had it before.
  for (int i = 0; i < 30 && log_.count({"a message of another process was ignored"}) == 0; ++i) {
    attack(LyingReport{{-1}});
    await_victim();
  }
  EXPECT_GE(log_.count({"a message of another process was ignored"}), 1U) << log_.text();
  await_victim();
  const RunResult result = end_in_order();
  EXPECT_FALSE(result.error) << result.error->message;
}

}  // namespace hostile_process_test
}  // namespace grapevine
