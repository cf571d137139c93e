// A rank gives its state to others, in virtual time: the supervisor and the other ranks are the
// test.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/run/peer.hpp"
#include "actors/run/state_bytes.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "gpu/quadratic_compute.hpp"
#include "messages/random.hpp"
#include "net/inproc/inproc.hpp"
#include "net/inproc/mailbox.hpp"
#include "tests/actors/virtual_actors.hpp"

namespace grapevine {
namespace given_state_test {

constexpr std::int64_t kOnePart = std::int64_t{1} << 20;
constexpr std::size_t kWindow = StateStream::kWindow;
constexpr std::int32_t kRanks = 4;
constexpr std::int64_t kDimension = 300;

// Another rank: it keeps the parts of a state that have come, and reports them when it is asked to.
struct Taker : Inbox {
  void deliver(Envelope envelope) override {
    auto* chunk = std::get_if<StateChunk>(&envelope.payload);
    if (chunk == nullptr) return;
    EXPECT_EQ(chunk->offset, static_cast<std::int64_t>(bytes.size()));
    const auto* data = static_cast<const char*>(chunk->data.raw());
    bytes.insert(bytes.end(), data, data + chunk->data.numel());
    ends.push_back(static_cast<std::int64_t>(bytes.size()));
    total = chunk->total;
    if (!first) first = chunk->data;
  }
  void peer_down(Rank, const std::string&) override {}

  std::size_t unreported() const { return ends.size() - reported; }
  bool has_all() const { return total == static_cast<std::int64_t>(bytes.size()); }

  std::vector<char> bytes;
  std::vector<std::int64_t> ends;  // of the parts
  std::size_t reported = 0;        // parts
  std::int64_t total = -1;
  std::optional<FrozenTensor> first;  // part
};

// Rank 0 of four that do SGP, which shares its model with those that join: its state.
class GivingRank {
 public:
  GivingRank(caf::actor_system& system, caf::scheduler::test_coordinator& scheduler,
             caf::scoped_actor& self, SupervisorActor supervisor, std::int64_t part_bytes)
      : scheduler_(scheduler), self_(self) {
    QuadraticConfig quadratic;
    quadratic.dimension = kDimension;
    quadratic.ranks = kRanks;
    std::shared_ptr<Compute> compute = std::move(*QuadraticCompute::make(quadratic));
    PeerConfig config;
    config.workers = config.ranks = kRanks;
    config.parts = *make_parts(*resolve(find_preset("sgp")->wiring), {40, 10},
                               *LrSchedule::make(LrConfig{}), OptimizerConfig{}, kRanks);
    parts_ = config.parts;
    config.transport = transport_;
    config.parameters = compute->initial_parameters();
    config.buffers = compute->initial_buffers();
    config.worker.compute = std::move(compute);
    config.worker.delay = *parse_delay("", kRanks, 1);
    config.supervisor = std::move(supervisor);
    config.detach_worker = false;
    config.state_part_bytes = part_bytes;
    peer_ = system.spawn(peer, config);
    inbox_ = make_mailbox_inbox(peer_);
    EXPECT_TRUE(transport_->attach(0, inbox_).ok());
    for (Rank rank = 1; rank < kRanks; ++rank) EXPECT_TRUE(transport_->attach(rank, of(rank)).ok());
    tell(StartTraining{});
  }
  ~GivingRank() {
    transport_->detach(0);
    self_->send_exit(peer_, caf::exit_reason::kill);
    scheduler_.run();
  }

  // It is the donor of a view that these ranks join.
  void give(std::int64_t number, std::vector<Rank> joining) {
    tell(HoldForView{number, {0, 1, 2, 3}, {}, false});
    tell(AskTraffic{number, 1});
    tell(CloseView{number});
    InstallView view;
    view.view = number;
    view.members = {0, 1, 2, 3};
    view.horizon = parts_->horizon.among(4, 4, 1, 0.1);
    view.donor = 0;
    view.joining = std::move(joining);
    tell(view);
  }

  // The rank reports so many further parts.
  void report(Rank rank, std::size_t parts) {
    Taker& taker = *of(rank);
    taker.reported += parts;
    received(rank, 1, taker.ends[taker.reported - 1]);
  }
  void received(Rank rank, std::int64_t transfer, std::int64_t bytes) {
    Envelope envelope;
    envelope.from = rank;
    envelope.to = 0;
    envelope.payload = StateReceived{transfer, bytes};
    transport_->send(std::move(envelope));
    scheduler_.run();
  }
  void lose(Rank rank) {
    inbox_->peer_down(rank, "");
    scheduler_.run();
  }

  std::shared_ptr<Taker>& of(Rank rank) { return takers_[rank]; }

  template <class Message>
  void tell(Message message) {
    self_->send(peer_, std::move(message));
    scheduler_.run();
  }

 private:
  caf::scheduler::test_coordinator& scheduler_;
  caf::scoped_actor& self_;
  const std::shared_ptr<Transport> transport_ = make_inproc_transport(kRanks);
  std::map<Rank, std::shared_ptr<Taker>> takers_ = {{1, std::make_shared<Taker>()},
                                                    {2, std::make_shared<Taker>()},
                                                    {3, std::make_shared<Taker>()}};
  std::shared_ptr<const SharedParts> parts_;
  std::shared_ptr<Inbox> inbox_;
  PeerActor peer_;
};

class GivenState : public VirtualActors {
 protected:
  std::unique_ptr<GivingRank> giving(std::int64_t part_bytes) {
    return std::make_unique<GivingRank>(system_, scheduler_, self_, played<SupervisorActor>(),
                                        part_bytes);
  }

  // Of the moment of the view, in one part.
  std::vector<char> whole_state(const std::vector<Rank>& joining) {
    const auto donor = giving(kOnePart);
    donor->give(1, joining);
    EXPECT_TRUE(donor->of(joining.front())->has_all()) << "it is more than one part";
    return donor->of(joining.front())->bytes;
  }
  static std::int64_t part_for(std::size_t bytes, std::size_t parts) {
    return static_cast<std::int64_t>((bytes + parts - 1) / parts);
  }

  // The model of the rank at present: x / w.
  at::Tensor model(GivingRank& donor) {
    donor.tell(Collect{true});
    std::optional<at::Tensor> z;
    for (bool empty = false; !empty;)
      self_->receive([&](const RankReport& report) { z = report.z.read(); },
                     [](const StepReport&) {}, [](const RankFigures&) {}, [](const Traffic&) {},
                     [](const ViewClosed&) {}, [](Progress) {},
                     [](const RankFailed& failed) { ADD_FAILURE() << failed.error.message; },
                     caf::after(std::chrono::seconds(0)) >> [&] { empty = true; });
    EXPECT_TRUE(z) << "no report";
    return z.value_or(at::Tensor());
  }
};

// Whatever the order in which they report, and although the rank has taken a step since.
TEST_F(GivenState, IsTheStateOfThatMomentForAllInsideTheWindow) {
  for (std::size_t takers = 1; takers <= 3; ++takers) {
    std::vector<Rank> joining;
    for (std::size_t i = 1; i <= takers; ++i) joining.push_back(static_cast<Rank>(i));
    const std::vector<char> state = whole_state(joining);
    for (const std::size_t parts :
         {std::size_t{1}, kWindow - 1, kWindow, kWindow + 1, 5 * kWindow + 3}) {
      SCOPED_TRACE(testing::Message() << takers << " takers, " << parts << " parts");
      Rng rng(takers * 100 + parts);
      const auto donor = giving(part_for(state.size(), parts));
      donor->give(1, joining);
      std::vector<Rank> open = joining;
      while (!open.empty()) {
        const auto next = open.begin() + static_cast<std::ptrdiff_t>(rng() % open.size());
        Taker& taker = *donor->of(*next);
        ASSERT_GT(taker.unreported(), 0U) << "no further part comes";
        ASSERT_LE(taker.unreported(), kWindow);
        donor->report(*next, 1 + rng() % taker.unreported());
        if (taker.has_all() && taker.unreported() == 0) open.erase(next);
      }
      for (const Rank rank : joining) EXPECT_EQ(donor->of(rank)->bytes, state);
      EXPECT_EQ(donor->of(joining.front())->ends.size(), parts);
    }
  }
  const auto read = from_bytes(whole_state({1}));
  ASSERT_TRUE(read.ok());
  const auto donor = giving(256);
  donor->give(1, {1});
  const at::Tensor then = *read->tensor("model.x") / *read->number("model.w");
  EXPECT_FALSE(at::allclose(model(*donor), then)) << "the rank has not trained meanwhile";
}

// One copy for all takers, until the last one has it or is lost.
TEST_F(GivenState, IsFreedWithTheLastTaker) {
  for (const bool dies : {false, true}) {
    SCOPED_TRACE(dies ? "the last one dies" : "the last one has all");
    const auto donor = giving(256);
    donor->give(1, {1, 2});
    const auto first = donor->of(1);
    const auto second = donor->of(2);
    EXPECT_EQ(first->first->raw(), second->first->raw()) << "two copies";
    second->first.reset();
    while (!first->has_all() || first->unreported() > 0) donor->report(1, 1);
    EXPECT_FALSE(first->first->sole_owner()) << "another one takes it still";
    while (!dies && (!second->has_all() || second->unreported() > 0)) {
      donor->report(2, 1);
      second->first.reset();
    }
    if (dies) donor->lose(2);
    EXPECT_TRUE(first->first->sole_owner());
    EXPECT_EQ(second->has_all(), !dies);
  }
}

// After any number of parts; the other one is not affected.
TEST_F(GivenState, AReportOfALostTakerSendsNothing) {
  const std::vector<char> state = whole_state({1, 2});
  for (std::size_t after = 0; after < 9; ++after) {
    SCOPED_TRACE(testing::Message() << "after " << after << " parts");
    const auto donor = giving(part_for(state.size(), 10));
    donor->give(1, {1, 2});
    for (std::size_t i = 0; i < after; ++i) donor->report(1, 1);
    donor->lose(1);
    const std::size_t came = donor->of(1)->ends.size();
    if (donor->of(1)->unreported() > 0) donor->report(1, donor->of(1)->unreported());
    EXPECT_EQ(donor->of(1)->ends.size(), came);
    while (!donor->of(2)->has_all()) donor->report(2, donor->of(2)->unreported());
    EXPECT_EQ(donor->of(2)->bytes, state);
  }
}

TEST_F(GivenState, BelievesNoReportThatCannotBe) {
  const auto donor = giving(256);
  donor->give(1, {1});
  const auto taker = donor->of(1);
  ASSERT_EQ(taker->ends.size(), kWindow);
  donor->received(1, 2, 256);               // of another view
  donor->received(2, 1, 256);               // of a rank that takes none
  donor->received(1, 1, 100);               // within a part
  donor->received(1, 1, 256 * 5);           // was not sent
  donor->received(1, 1, taker->total + 1);  // nor was this
  EXPECT_EQ(taker->ends.size(), kWindow);
  donor->report(1, 2);
  EXPECT_EQ(taker->ends.size(), kWindow + 2);
}

// Of a taker that is lost, whose loss this rank does not know, or that ignores it.
TEST_F(GivenState, EndsWithTheNextView) {
  const auto donor = giving(256);
  donor->give(1, {1});
  const auto taker = donor->of(1);
  EXPECT_FALSE(taker->first->sole_owner());
  donor->give(2, {});
  EXPECT_TRUE(taker->first->sole_owner());
  const std::size_t came = taker->ends.size();
  donor->report(1, 1);
  EXPECT_EQ(taker->ends.size(), came);
}

}  // namespace given_state_test
}  // namespace grapevine
