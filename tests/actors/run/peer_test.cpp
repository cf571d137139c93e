// The Peer by itself, in virtual time: the supervisor and the other rank are the test.
#include "actors/run/peer.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/run/state_bytes.hpp"
#include "algorithms/roles/make_role.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "gpu/quadratic_compute.hpp"
#include "net/inproc/inproc.hpp"
#include "net/inproc/mailbox.hpp"
#include "tests/actors/virtual_actors.hpp"

namespace grapevine {
namespace peer_test {

struct Received : Inbox {
  void deliver(Envelope envelope) override { envelopes.push_back(std::move(envelope)); }
  void peer_down(Rank, const std::string&) override {}

  std::vector<Envelope> envelopes;
};

// Rank 0 of two that do SGP.
class PeerCut : public VirtualActors {
 protected:
  // `room`: records of its trace that may wait for the disk; none: it does not trace. `elsewhere`:
  // in another process than process 0. `late`: in one that joins a run that has begun.
  explicit PeerCut(std::optional<std::size_t> room = {}, const std::string& preset = "sgp",
                   const std::string& delay = "", bool elsewhere = false, bool late = false) {
    QuadraticConfig quadratic;
    quadratic.dimension = 4;
    quadratic.ranks = 2;
    std::shared_ptr<Compute> compute = std::move(*QuadraticCompute::make(quadratic));
    PeerConfig config;
    config.workers = config.ranks = 2;
    config.parts = *make_parts(*resolve(find_preset(preset)->wiring), {40, 10},
                               *LrSchedule::make(LrConfig{}), OptimizerConfig{}, 2);
    config.transport = transport_;
    parts_ = config.parts;
    config.parameters = compute->initial_parameters();
    config.buffers = compute->initial_buffers();
    config.worker.compute = std::move(compute);
    config.worker.delay = *parse_delay(delay, 2, 1);
    config.supervisor = played<SupervisorActor>();
    if (elsewhere) config.shards = played<ShardWriterActor>();
    if (late) config.agent = played<JoiningAgentActor>();
    config.detach_worker = false;
    if (room) {
      config.tracer = played<TracerActor>();
      config.trace_budget = budget_ = std::make_shared<TraceBudget>(*room);
    }
    peer_ = system_.spawn(peer, config);
    EXPECT_TRUE(transport_->attach(0, make_mailbox_inbox(peer_)).ok());
    EXPECT_TRUE(transport_->attach(1, other_).ok());
    if (!late) self_->send(peer_, StartTraining{});
    settle();
  }
  ~PeerCut() override {
    transport_->detach(0);
    kill(peer_);
  }

  void send(Payload payload) {
    Envelope envelope;
    envelope.from = 1;
    envelope.to = 0;
    envelope.payload = std::move(payload);
    transport_->send(std::move(envelope));
    settle();
  }

  // The ids of the snapshots that came, in their order.
  std::vector<std::int64_t> snapshots() {
    std::vector<std::int64_t> ids;
    bool empty = false;
    while (!empty)
      self_->receive([&](const RankSnapshot& snapshot) { ids.push_back(snapshot.id); },
                     [](const StepReport&) {}, [](Progress) {},
                     [](const RankFailed& failed) { ADD_FAILURE() << failed.error.message; },
                     caf::after(std::chrono::seconds(0)) >> [&] { empty = true; });
    return ids;
  }

  std::vector<std::int64_t> markers() const {
    std::vector<std::int64_t> ids;
    for (const Envelope& envelope : other_->envelopes)
      if (const auto* marker = std::get_if<Marker>(&envelope.payload)) ids.push_back(marker->id);
    return ids;
  }

  const std::shared_ptr<Transport> transport_ = make_inproc_transport(2);
  const std::shared_ptr<Received> other_ = std::make_shared<Received>();
  std::shared_ptr<const SharedParts> parts_;
  std::shared_ptr<TraceBudget> budget_;
  PeerActor peer_;
};

// Batches of trace records that came.
class PeerTrace : public PeerCut {
 protected:
  // Records wait for more of them, a fraction of a second.
  explicit PeerTrace(std::size_t room) : PeerCut(room) { pass(1); }
  int batches() {
    int count = 0;
    bool empty = false;
    while (!empty)
      self_->receive([&](const TraceBatch&) { ++count; }, [](const StepReport&) {}, [](Progress) {},
                     caf::after(std::chrono::seconds(0)) >> [&] { empty = true; });
    return count;
  }
};
class PeerWithRoom : public PeerTrace {
 protected:
  PeerWithRoom() : PeerTrace(1000) {}
};
class PeerWithoutRoom : public PeerTrace {
 protected:
  PeerWithoutRoom() : PeerTrace(1) {}
};

// A disk that does not keep up costs records, and no memory.
TEST_F(PeerWithRoom, TakesTheRoomOfItsRecords) {
  EXPECT_GT(batches(), 0);
  EXPECT_EQ(budget_->dropped(), 0U);
  EXPECT_FALSE(budget_->take(1000)) << "nothing was taken";
}
TEST_F(PeerWithoutRoom, LeavesOutWhatHasNone) {
  EXPECT_EQ(batches(), 0);
  EXPECT_GT(budget_->dropped(), 0U);
}

// Between processes a marker may overtake the supervisor's own word: what comes after it belongs to
// the time after the cut, so the cut is now.
TEST_F(PeerCut, AMarkerThatComesFirstIsTheCut) {
  send(Marker{1});
  EXPECT_EQ(snapshots(), std::vector<std::int64_t>{1});
  EXPECT_EQ(markers(), std::vector<std::int64_t>{1});
  self_->send(peer_, TakeSnapshot{1});
  settle();
  EXPECT_TRUE(snapshots().empty()) << "a second cut of the same name";
  EXPECT_EQ(markers(), std::vector<std::int64_t>{1});
}

TEST_F(PeerCut, EndsWithTheMarkerOfTheLastChannel) {
  self_->send(peer_, TakeSnapshot{1});
  settle();
  EXPECT_TRUE(snapshots().empty()) << "before the other rank's marker";
  EXPECT_EQ(markers(), std::vector<std::int64_t>{1});
  send(Marker{1});
  EXPECT_EQ(snapshots(), std::vector<std::int64_t>{1});
}

// A rank of another process than process 0.
class PeerElsewhere : public PeerCut {
 protected:
  PeerElsewhere() : PeerCut({}, "sgp", "", true) {}
};

TEST_F(PeerElsewhere, TellsWhereItsStateGoes) {
  self_->send(peer_, TakeSnapshot{1, "a folder", 7});
  settle();
  EXPECT_TRUE(markers().empty()) << "there is no rank 7";
  self_->send(peer_, TakeSnapshot{1, "a folder", 1});
  settle();
  send(Marker{1});
  std::optional<StoreState> order;
  while (!order) {
    bool empty = false;
    self_->receive([&](StoreState& came) { order = std::move(came); }, [](const StepReport&) {},
                   [](Progress) {}, caf::after(std::chrono::seconds(0)) >> [&] { empty = true; });
    ASSERT_FALSE(empty) << "no state came";
  }
  EXPECT_EQ(order->folder, "a folder");
  EXPECT_EQ(order->receiver, 1);
}

// Rank 0 of two that do all-reduce, whose first gradient is on its way.
class PeerHolding : public PeerCut {
 protected:
  PeerHolding() : PeerCut({}, "ar", "rank=0:20ms") {}

  // Whether the question of that view's traffic is answered.
  bool answers(std::int64_t view) {
    self_->send(peer_, AskTraffic{view, 1});
    return has_answered();
  }
  bool has_answered() {
    settle();
    bool found = false, empty = false;
    while (!empty)
      self_->receive([&](const Traffic&) { found = true; }, [](const StepReport&) {},
                     [](const RankFigures&) {}, [](Progress) {},
                     [](const RankFailed& failed) { ADD_FAILURE() << failed.error.message; },
                     caf::after(std::chrono::seconds(0)) >> [&] { empty = true; });
    return found;
  }
  void end_gradient() { scheduler_.advance_time(std::chrono::milliseconds(20)); }
  std::size_t chunks() const {
    return static_cast<std::size_t>(std::count_if(
        other_->envelopes.begin(), other_->envelopes.end(),
        [](const Envelope& sent) { return std::holds_alternative<Chunk>(sent.payload); }));
  }
};

TEST_F(PeerHolding, TheGradientThatIsComputedReachesTheRole) {
  self_->send(peer_, HoldForView{1, {0, 1}, {}, true});
  EXPECT_FALSE(answers(1)) << "messages of its exchange are still to come";
  EXPECT_EQ(chunks(), 0u);
  end_gradient();
  EXPECT_TRUE(has_answered());
  EXPECT_EQ(chunks(), 1u);
}

TEST_F(PeerHolding, AfterALossItDoesNot) {
  self_->send(peer_, HoldForView{1, {0, 1}, {}, false});
  EXPECT_TRUE(answers(1));
  end_gradient();
  settle();
  EXPECT_EQ(chunks(), 0u);
}

// The supervisor proposes a view before it has heard of the loss, which this rank knows. No second
// report of it comes: if this rank took the other for one that returns, it would wait for ever.
TEST_F(PeerHolding, ARankThatHasEndedDoesNotReturnUnlessTheSupervisorSaysSo) {
  self_->send(peer_, PeerLost{1, ""});
  self_->send(peer_, HoldForView{1, {0, 1}, {}, false});
  EXPECT_TRUE(answers(1));
  self_->send(peer_, HoldForView{2, {0}, {}, false});
  EXPECT_TRUE(answers(2));
  self_->send(peer_, HoldForView{3, {0, 1}, {1}, false});
  EXPECT_TRUE(answers(3));
  self_->send(peer_, HoldForView{4, {0}, {}, false});
  EXPECT_FALSE(answers(4)) << "messages of its new life may be on their way";
}

TEST_F(PeerHolding, ALossDoesNotWaitForIt) {
  self_->send(peer_, HoldForView{1, {0, 1}, {}, true});
  EXPECT_FALSE(answers(1));
  self_->send(peer_, HoldForView{2, {0, 1}, {}, false});
  EXPECT_TRUE(answers(2));
  self_->send(peer_, HoldForView{3, {0, 1}, {}, true});
  EXPECT_TRUE(answers(3)) << "parts of it may have been left out";
  end_gradient();
  settle();
  EXPECT_EQ(chunks(), 0u);
}

// Rank 0 of two that do all-reduce: it waits for the other's part of the first sum.
class PeerBehind : public PeerCut {
 protected:
  PeerBehind() : PeerCut({}, "ar") {}

  template <class Answer, class Question>
  Answer ask(const Question& question) {
    self_->send(peer_, question);
    settle();
    std::optional<Answer> found;
    bool empty = false;
    while (!found && !empty)
      self_->receive([&](const Answer& answer) { found = answer; }, [](const StepReport&) {},
                     [](const RankFigures&) {}, [](Progress) {},
                     [](const RankFailed& failed) { ADD_FAILURE() << failed.error.message; },
                     caf::after(std::chrono::seconds(0)) >> [&] { empty = true; });
    EXPECT_TRUE(found) << "no answer";
    return found.value_or(Answer());
  }

  // Holds and closes; the other rank has completed the first sum.
  InstallView close() {
    self_->send(peer_, HoldForView{1, {0, 1}, {}, false});
    ask<Traffic>(AskTraffic{1, 1});
    const auto closed = ask<ViewClosed>(CloseView{1});
    EXPECT_EQ(closed.operations, 0);
    InstallView view;
    view.view = 1;
    view.members = {0, 1};
    view.operations = 1;
    view.horizon = parts_->horizon.among(2, 2, 1, 0.1);
    view.donor = 1;
    view.behind = {0};
    return view;
  }

  // Of the other rank, in so many messages.
  void send_state(std::int64_t parts) {
    ModelState model;
    model.x = FrozenTensor::copy_of(at::full({4}, 7.0));
    const auto role = make_role(parts_, 1, 2, model);
    StateDict state;
    state.put("model.x", model.x.read());
    state.put("model.w", 1.0);
    state.put_list("ranks.members", {0, 1});
    state.put_all("role", role->save_shared());
    const std::vector<char> bytes = to_bytes(state);
    const auto total = static_cast<std::int64_t>(bytes.size());
    at::Tensor all = at::empty({total}, at::kByte);
    std::memcpy(all.data_ptr(), bytes.data(), bytes.size());
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t begin = total * part / parts, end = total * (part + 1) / parts;
      send(StateChunk{1, begin, total, FrozenTensor::copy_of(all.narrow(0, begin, end - begin))});
    }
  }

  void expect_model_of_the_other() {
    const auto report = ask<RankReport>(Collect{true});
    EXPECT_TRUE(at::equal(report.z.read(), at::full({4}, 7.0))) << report.z.read();
    EXPECT_EQ(report.step, 1) << "its gradient is in the sum that it lacked";
    EXPECT_EQ(report.ledger.committed, 1);
  }
};

TEST_F(PeerBehind, TakesTheModelOfARankThatIsAhead) {
  const InstallView view = close();
  self_->send(peer_, view);
  settle();
  send_state(3);
  expect_model_of_the_other();
}

// Links and the supervisor's messages take different ways.
TEST_F(PeerBehind, TheModelMayComeBeforeTheView) {
  const InstallView view = close();
  send_state(2);
  self_->send(peer_, view);
  settle();
  expect_model_of_the_other();
}

// Rank 0 of two that do all-reduce comes while the other one trains.
class PeerThatJoins : public PeerCut {
 protected:
  PeerThatJoins() : PeerCut({}, "ar", "", false, true) {}
  // Those that came.
  std::vector<LinkLost> link_reports() {
    std::vector<LinkLost> reports;
    for (bool empty = false; !empty;)
      self_->receive([&](const LinkLost& lost) { reports.push_back(lost); },
                     caf::after(std::chrono::seconds(0)) >> [&] { empty = true; });
    return reports;
  }
  // The link to rank 1 breaks before the first view, in which `arriving` arrive.
  void expect_report_of_link(const std::vector<Rank>& arriving) {
    const std::shared_ptr<Inbox> inbox = make_mailbox_inbox(peer_);
    inbox->peer_down(1, "reset by a switch");
    settle();
    self_->send(peer_, HoldForView{1, {0, 1}, arriving, false});
    settle();
    const std::vector<LinkLost> reports = link_reports();
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_EQ(reports[0].reporter, 0);
    EXPECT_EQ(reports[0].peer, 1);
    EXPECT_EQ(reports[0].reason, "reset by a switch");
  }
};

// As a rank whose model is on a device that fails.
TEST_F(PeerThatJoins, LeavesWithItsProcessWhereAMessageCannotBeCopied) {
  self_->send(peer_, HoldForView{1, {0, 1}, {0}, false});
  settle();
  self_->send(caf::actor_cast<LocalPeerActor>(peer_), StagingFailed{{Errc::timeout, "no answer"}});
  settle();
  std::optional<RunEnded> ended;
  bool empty = false;
  while (!empty)
    self_->receive([&](const RunEnded& came) { ended = came; }, [](const Traffic&) {},
                   [](const ViewClosed&) {}, [](Progress) {},
                   [](const RankFailed& failed) {
                     ADD_FAILURE() << "the others continue: " << failed.error.message;
                   },
                   caf::after(std::chrono::seconds(0)) >> [&] { empty = true; });
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->error.message, "no answer");
}

// The other rank does not know this one yet: its own report of the link counts for nothing.
TEST_F(PeerThatJoins, ReportsALinkThatBrokeBeforeItsFirstView) { expect_report_of_link({0}); }

// As where a run is resumed that had lost both: the other rank may have heard nothing.
TEST_F(PeerThatJoins, ReportsALinkThatBrokeToARankThatJoinsWithIt) {
  expect_report_of_link({0, 1});
}

// A process that had departed before is none of a broken link.
TEST_F(PeerThatJoins, ReportsNoLinkToARankThatHasDeparted) {
  const std::shared_ptr<Inbox> inbox = make_mailbox_inbox(peer_);
  inbox->peer_down(1, "");
  settle();
  self_->send(peer_, HoldForView{1, {0}, {0}, false});
  settle();
  EXPECT_TRUE(link_reports().empty());
}

TEST_F(PeerThatJoins, LeavesWithItsProcessWhereItCannotTakeTheState) {
  self_->send(peer_, HoldForView{1, {0, 1}, {0}, false});
  self_->send(peer_, AskTraffic{1, 1});
  self_->send(peer_, CloseView{1});
  InstallView view;
  view.view = 1;
  view.members = {0, 1};
  view.horizon = parts_->horizon.among(1, 2, 1, 0.1);
  view.donor = 1;
  view.joining = {0};
  self_->send(peer_, view);
  settle();
  send(StateChunk{1, 0, 40, FrozenTensor::copy_of(at::full({40}, 7, at::kByte))});
  std::optional<RunEnded> ended;
  std::int64_t operations = 0;
  bool empty = false;
  while (!empty)
    self_->receive([&](const RunEnded& came) { ended = came; }, [](const Traffic&) {},
                   [&](const ViewClosed& closed) { operations = closed.operations; },
                   [](Progress) {},
                   [](const RankFailed& failed) {
                     ADD_FAILURE() << "the others continue: " << failed.error.message;
                   },
                   caf::after(std::chrono::seconds(0)) >> [&] { empty = true; });
  EXPECT_EQ(operations, ViewClosed::kJoins);
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->failed);
  EXPECT_EQ(ended->error.message.rfind("rank 0: the state of another rank: ", 0), 0U)
      << ended->error.message;
}

// Ranks 0 and 1 train beside the servers 2 and 3, of which the next wiring has the first. The test
// is all ranks but one.
class PeerBesideServers : public VirtualActors {
 protected:
  // `joins`: a run that has begun.
  void begin(Rank rank, bool joins) {
    QuadraticConfig quadratic;
    quadratic.dimension = 4;
    quadratic.ranks = 2;
    std::shared_ptr<Compute> compute = std::move(*QuadraticCompute::make(quadratic));
    Wiring wiring = find_preset("gem")->wiring;
    EXPECT_TRUE(wiring.set("servers", "2"));
    PeerConfig config;
    config.rank = rank;
    config.workers = 2;
    config.ranks = 4;
    parts_ = *make_parts(*resolve(wiring), {40, 10}, *LrSchedule::make(LrConfig{}),
                         OptimizerConfig{}, 2);
    config.parts = parts_;
    config.transport = transport_;
    config.parameters = compute->initial_parameters();
    config.buffers = compute->initial_buffers();
    config.worker.compute = std::move(compute);
    config.worker.delay = *parse_delay("", 2, 1);
    config.supervisor = played<SupervisorActor>();
    if (joins) config.agent = played<JoiningAgentActor>();
    config.detach_worker = false;
    peer_ = system_.spawn(peer, config);
    if (!joins) self_->send(peer_, StartTraining{});
    settle();
  }
  ~PeerBesideServers() override { kill(peer_); }

  // The rank waits for its state in the view of that wiring.
  void await_state(Rank donor, const std::vector<Rank>& joining) {
    self_->send(peer_, HoldForView{1, {0, 1, 2, 3}, joining, false});
    self_->send(peer_, AskTraffic{1, 1});
    self_->send(peer_, CloseView{1});
    InstallView view;
    view.view = 1;
    view.kind = ViewKind::new_wiring;
    view.members = {0, 1};
    view.horizon = parts_->horizon.among(2, 2, 1, 0.1);
    view.donor = donor;
    view.joining = joining;
    view.new_servers = {2};
    view.servers = 1;
    self_->send(peer_, view);
    settle();
  }
  // The donor is lost. Whether the rank takes part in the next view, of these.
  bool takes_part_without(Rank donor, const std::vector<Rank>& members) {
    self_->send(peer_, PeerLost{donor, ""});
    self_->send(peer_, HoldForView{2, members, {}, false});
    self_->send(peer_, AskTraffic{2, 1});
    settle();
    bool answers = false;
    for (bool empty = false; !empty;)
      self_->receive([&](const Traffic& traffic) { answers = answers || traffic.view == 2; },
                     [](const RankFailed& failed) { ADD_FAILURE() << failed.error.message; },
                     caf::after(std::chrono::seconds(0)) >> [&] { empty = true; });
    return answers;
  }

  const std::shared_ptr<Transport> transport_ = make_inproc_transport(4);
  std::shared_ptr<const SharedParts> parts_;
  PeerActor peer_;
};

// Nobody reports the end of the other server: it lives.
TEST_F(PeerBesideServers, AServerThatWaitsForItsSliceLeavesTheOthers) {
  begin(2, false);
  await_state(0, {});
  EXPECT_TRUE(takes_part_without(0, {1, 2}));
}
TEST_F(PeerBesideServers, ARankThatWaitsForItsStateLeavesServersToo) {
  begin(0, true);
  await_state(1, {0});
  EXPECT_TRUE(takes_part_without(1, {0, 2}));
}

}  // namespace peer_test
}  // namespace grapevine
