// A process that is none of the run's reaches the Supervisor of a run with every type of message
// between processes: those that name no rank of the run, orders, and sizes that are not there. It
// ends nothing, and the run continues to its end. It could report steps in the name of a rank that
// exists, which no test here excludes: CAF's messages carry no proof (docs/security.md).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <fstream>
#include <future>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/rendezvous.hpp"
#include "actors/run/models/evaluator.hpp"
#include "actors/run/supervisor.hpp"
#include "messages/codec.hpp"
#include "tests/actors/cluster/lying_measures.hpp"
#include "tests/actors/cluster/published_supervisor.hpp"
#include "tests/fuzz/control_messages.hpp"
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

class Heard : public RunObserver {
 public:
  void on_step(const StepReport& report) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    steps.push_back(report.rank);
    stepped_.notify_all();
  }
  void on_figures(const RankFigures& figures) override { figures_of.push_back(figures.rank); }
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_end(RunResult result) override { end.set_value(std::move(result)); }

  bool await_steps(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return stepped_.wait_for(lock, kDeadline, [&] { return steps.size() >= count; });
  }

  std::vector<Rank> steps, figures_of;  // before end alone
  std::promise<RunResult> end;

 private:
  std::mutex mutex_;  // steps
  std::condition_variable stepped_;
};

// A message that names no rank and no process of the run, if it names any.
template <class Message, class = void>
struct NamesRank : std::false_type {};
template <class Message>
struct NamesRank<Message, std::void_t<decltype(std::declval<Message&>().rank = Rank{})>>
    : std::true_type {};
template <class Message, class = void>
struct NamesProcess : std::false_type {};
template <class Message>
struct NamesProcess<Message, std::void_t<decltype(std::declval<Message&>().process = Rank{})>>
    : std::true_type {};
template <class Message>
Message outside_the_run() {
  constexpr Rank kNobody = 1 << 28;
  Message message{};
  if constexpr (NamesRank<Message>::value) message.rank = kNobody;
  if constexpr (NamesProcess<Message>::value) message.process = kNobody;
  if constexpr (std::is_same_v<Message, LinkLost>) message.reporter = message.peer = kNobody;
  return message;
}

// A number of /proc/self/status, in bytes: "VmPeak", the most address space so far, or "VmHWM", the
// most memory.
std::uint64_t status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(name + ":", 0) == 0) return std::stoull(line.substr(name.size() + 1)) << 10;
  ADD_FAILURE() << "no " << name;
  return 0;
}

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
          [](const ViewCounts&) {},
          [](const InstallView&) {},
          [](QueryWaits) {},
          [](const CheckSettings&) {},
          [](const PartStored&) {}};
}

class HostileProcess : public testing::Test {
 protected:
  HostileProcess() {
    configure_for_cluster(hostile_config_, std::chrono::seconds(10));
    hostile_config_.add_message_type<LyingReport>("grapevine::RankReport");
    hostile_config_.add_message_type<LyingMeasures>("grapevine::RankReport");
    hostile_ = std::make_unique<caf::actor_system>(hostile_config_);
    BeginRun crew;
    for (Rank rank = 0; rank < PublishedSupervisor::kRanks; ++rank)
      crew.peers.push_back(supervisor_.system().spawn(stand_in, rank, supervisor_.actor()));
    peers_ = crew.peers;
    caf::anon_send(supervisor_.actor(), crew);
    victim_ = caf::actor_cast<caf::actor>(supervisor_.found_by(*hostile_));
  }
  ~HostileProcess() override {
    victim_ = nullptr;
    for (const PeerActor& peer : peers_) caf::anon_send_exit(peer, caf::exit_reason::user_shutdown);
    peers_.clear();
  }

  template <class Message>
  void attack(Message message) {
    caf::anon_send(victim_, std::move(message));
  }

  // The last message of the hostile process is accepted: a step in the name of rank 1.
  RunResult end_in_order() {
    supervisor_.finish_ranks();
    auto end = heard_->end.get_future();
    if (end.wait_for(kDeadline) == std::future_status::ready) return end.get();
    ADD_FAILURE() << "the run does not end";
    return {};
  }
  // An order that names its sender, an actor of the hostile process.
  template <class Message>
  void attack_with_sender(Message message) {
    caf::scoped_actor self{*hostile_};
    self->send(victim_, std::move(message));
  }
  template <std::size_t... I>
  void attack_with_all(std::index_sequence<I...>) {
    (attack(outside_the_run<std::tuple_element_t<I, fuzzing::ControlMessages>>()), ...);
  }
  // Until what was sent before has been dealt with: messages of a connection keep their order.
  void await_victim() {
    attack(StepReport{});
    EXPECT_TRUE(heard_->await_steps(++awaited_)) << "the supervisor does not answer";
  }

  // The line has a limit for the whole process: others may have had it in the last ten seconds.
  template <class Attack>
  void attack_until_logged(const std::vector<std::string>& line, const Attack& attack) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (log_.count(line) == 0 && std::chrono::steady_clock::now() < deadline) {
      attack();
      await_victim();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  const LogLines log_;  // outlives the actors
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  PublishedSupervisor supervisor_{heard_};
  caf::actor_system_config hostile_config_;
  std::unique_ptr<caf::actor_system> hostile_;
  std::vector<PeerActor> peers_;
  caf::actor victim_;        // as the hostile process knows it
  std::size_t awaited_ = 0;  // steps of await_victim()
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

TEST_F(HostileProcess, NoTypeOfMessageOutsideTheRunHasAnEffect) {
  constexpr auto kAll = std::make_index_sequence<std::tuple_size_v<fuzzing::ControlMessages>>();
  for (int i = 0; i < 3; ++i) attack_with_all(kAll);
  await_victim();
  const RunResult result = end_in_order();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(result.steps, (std::vector<Step>{1, 1}));
  EXPECT_TRUE(heard_->figures_of.empty());
}

// They name no rank: what counts is their sender.
TEST_F(HostileProcess, OrdersOfOtherProgramsAreIgnored) {
  attack(RankFailed{{Errc::failed, "an order without a sender"}});
  attack(StopRequested{});
  attack(CheckpointRequested{});
  attack_with_sender(RankFailed{{Errc::failed, "an order of another process"}});
  attack_with_sender(StopRequested{});
  attack_with_sender(CheckpointRequested{});
  await_victim();
  const RunResult result = end_in_order();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_FALSE(result.interrupted);
}

// Ranks without a gap take a few bytes, however many there are; and each actor makes a proxy.
TEST_F(HostileProcess, LongListsHaveNoEffect) {
  const caf::actor own = hostile_->spawn([]() -> caf::behavior { return {[](int) {}}; });
  for (const std::size_t length : {kMostPacked, kMostPacked + 1}) {
    std::vector<Rank> ranks(length);
    std::iota(ranks.begin(), ranks.end(), 0);
    attack(HoldForView{1, ranks, ranks, true});
    InstallView view;
    view.members = view.behind = view.joining = ranks;
    view.heads = view.new_servers = ranks;
    ViewCounts counts;
    RankFigures figures;
    for (const Rank rank : ranks) {
      counts.counts[rank] = {};
      figures.waited_ns[rank] = figures.ledger.staleness[rank] = rank;
      figures.sent_bytes[rank] = 1;
    }
    attack(view);
    attack(counts);
    attack(figures);
    WaitReport waits;
    waits.waits.resize(length);
    attack(waits);
    Ready ready;
    ready.peers.assign(length, caf::actor_cast<PeerActor>(own));
    attack(ready);
  }
  await_victim();
  const RunResult result = end_in_order();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(result.steps, (std::vector<Step>{1, 1}));
  EXPECT_TRUE(heard_->figures_of.empty());
  caf::anon_send_exit(own, caf::exit_reason::kill);
}

// Which CAF by itself prints, each with its content.
TEST_F(HostileProcess, MessagesThatAnActorDoesNotTakeHaveOneLine) {
  testing::internal::CaptureStdout();
  const std::vector<std::string> line = {"ignored a message that the actor 'supervisor'"};
  attack_until_logged(line, [this] {
    for (int message = 0; message < 50; ++message) {
      attack(Ping{});
      attack(RunEnded{true, {Errc::failed, "text of another process"}, false, ""});
    }
  });
  EXPECT_GE(log_.count(line), 1U) << log_.text();
  const RunResult result = end_in_order();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_LE(log_.count(line), 10U) << log_.text();
  EXPECT_EQ(testing::internal::GetCapturedStdout().find("unexpected"), std::string::npos);
}

TEST_F(HostileProcess, SizesThatAreNotThereAreNotBelieved) {
  await_victim();  // the threads of both systems have their memory
  const std::uint64_t space = status_bytes("VmPeak"), memory = status_bytes("VmHWM");
  attack(LyingReport{{std::int64_t{1} << 34}});  // 2^36 bytes
  attack(LyingReport{{std::int64_t{1} << 61}});  // 2^63 bytes
  attack(LyingReport{{std::int64_t{1} << 28}});
  attack(LyingReport{{-1}});
  attack(LyingMeasures{std::numeric_limits<std::uint32_t>::max(), 3});
  attack(LyingMeasures{1, 0});
  attack(LyingMeasures{1, 200});
  attack_until_logged({"a message of another process was ignored"},
                      [this] { attack(LyingReport{{-1}}); });
  EXPECT_GE(log_.count({"a message of another process was ignored"}), 1U) << log_.text();
  await_victim();
  // The least of the great ones is 2^36 bytes; memory that is never written counts as well.
  EXPECT_LT(status_bytes("VmPeak") - space, std::uint64_t{1} << 35);
  EXPECT_LT(status_bytes("VmHWM") - memory, std::uint64_t{1} << 29);
  const RunResult result = end_in_order();
  EXPECT_FALSE(result.error) << result.error->message;
}

}  // namespace hostile_process_test
}  // namespace grapevine
