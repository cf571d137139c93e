// The boundary to other processes: what is let in, what is ignored, what ends the run.
#include "actors/run/validate.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "actors/cluster/rendezvous.hpp"
#include "actors/run/step_times.hpp"
#include "messages/text/control_characters.hpp"

namespace grapevine {
namespace validate_test {

// Three workers and two servers, which hold three and two of five parameters.
World world() { return {3, 5, 2, 5, 2}; }

FrozenTensor zeros(std::int64_t size, at::ScalarType type = at::kFloat) {
  return FrozenTensor::freeze(at::zeros({size}, type));
}

void expect_ignored(const Expected<void>& checked) {
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, Errc::protocol) << checked.error().message;
}
void expect_end(const Expected<void>& checked, const std::string& text) {
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, Errc::failed) << checked.error().message;
  EXPECT_NE(checked.error().message.find(text), std::string::npos) << checked.error().message;
}

TEST(Validate, RanksAndProcessesAreThoseOfTheRun) {
  const Rank least = std::numeric_limits<Rank>::min(), most = std::numeric_limits<Rank>::max();
  for (const Rank rank : {least, -1, 5, 1 << 28, most}) {
    StepReport step;
    step.rank = rank;
    expect_ignored(check(step, world()));
    expect_ignored(check(RankFinished{rank}, world()));
    expect_ignored(check(StateStored{1, rank, 0, 5, 6}, world()));
    RankReport report;
    report.rank = rank;
    expect_ignored(check(report, world(), false));
    expect_ignored(check(report, world(), true));
    expect_ignored(check(EpochModel{rank, 0, zeros(5), zeros(2)}, world()));
    expect_ignored(check(PeerLost{rank, ""}, world()));
    expect_ignored(check(LinkLost{rank, 0, ""}, world()));
    expect_ignored(check(LinkLost{0, rank, ""}, world()));
    if (rank != 5) expect_ignored(check(ProcessClosed{rank}, world()));
  }
  StepReport of_a_server;
  of_a_server.rank = 3;
  expect_ignored(check(of_a_server, world()));
  expect_ignored(check(ProcessClosed{0}, world()));
  expect_ignored(check(ProcessClosed{3}, world()));
  for (Rank rank = 0; rank < 5; ++rank) {
    EXPECT_TRUE(check(RankFinished{rank}, world()).ok());
    EXPECT_TRUE(check(PeerLost{rank, "reset by a switch"}, world()).ok());
    EXPECT_TRUE(check(LinkLost{rank, 0, "reset by a switch"}, world()).ok());
  }
  EXPECT_TRUE(check(ProcessClosed{2}, world()).ok());
}

TEST(Validate, AQuestionForAJobHasLines) {
  const AskJob good{"1", "nonce", "proof", {{"lr", "0.1"}}};
  EXPECT_TRUE(check(good).ok());
  const std::vector<std::function<void(AskJob&)>> damages = {
      [](AskJob& a) { a.version = std::string(5000, 'x'); },
      [](AskJob& a) { a.nonce = "two\nlines"; },
      [](AskJob& a) { a.proof = std::string(5000, 'x'); },
      [](AskJob& a) { a.challenge = "two\nlines"; },
      [](AskJob& a) { a.options["lr"] = "0.1\n"; },
      [](AskJob& a) { a.options[std::string(5000, 'x')] = "1"; },
      [](AskJob& a) {
        for (int i = 0; i < 5000; ++i) a.options[std::to_string(i)];
      }};
  for (const auto& damage : damages) {
    AskJob damaged = good;
    damage(damaged);
    expect_ignored(check(damaged));
  }
}

// A loss is heard whatever its reason looks like.
TEST(Validate, ALossCountsAndItsReasonBecomesOneLine) {
  for (const std::string& reason : {std::string("two\nlines"), std::string(5000, 'x')}) {
    EXPECT_TRUE(check(PeerLost{0, reason}, world()).ok());
    EXPECT_TRUE(check(LinkLost{0, 1, reason}, world()).ok());
  }
  EXPECT_EQ(one_line("two\nlines\x7f"), "two lines ");
  EXPECT_EQ(one_line("a\tb\n", 4, '?'), "a?b?");
  EXPECT_EQ(one_line("a\tbcd\ne", 6, '?'), "a?b…");
  EXPECT_EQ(one_line("aäöü", 6), "aä…") << "cut within a character";
  EXPECT_EQ(one_line(std::string(5000, 'x')), std::string(4093, 'x') + "…");
  EXPECT_EQ(one_line("reset by a switch"), "reset by a switch");
}

TEST(Validate, NumbersOfAStepAreThoseThatAStepHas) {
  StepReport good;
  good.loss = std::nan("");  // training may diverge
  good.staleness = std::nan("");
  EXPECT_TRUE(check(good, world()).ok());
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double epochs : {std::nan(""), infinite, -infinite, -1.0, 1e300}) {
    StepReport step = good;
    step.epochs_done = epochs;
    expect_ignored(check(step, world()));
    step = good;
    step.epoch = epochs;
    expect_ignored(check(step, world()));
  }
  StepReport step = good;
  step.step = -1;
  expect_ignored(check(step, world()));
  step = good;
  step.samples = -1;
  expect_ignored(check(step, world()));
  step = good;
  step.view = -1;
  expect_ignored(check(step, world()));
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t taken : {std::int64_t{-1}, most}) {
    step = good;
    step.taken = taken;
    expect_ignored(check(step, world()));
    expect_ignored(check(ViewClosed{1, 0, 0, 0, 0, 1, taken}, world()));
  }
  expect_ignored(check(StateStored{1, 0, -1, 5, 6}, world()));
  expect_ignored(check(EpochModel{0, -1, zeros(5), zeros(2)}, world()));
}

RankFigures figures() {
  RankFigures figures;
  figures.rank = 4;  // a server
  figures.view = 1;
  figures.ledger.produced = 3;
  figures.ledger.staleness = {{0, 2}, {7, 1}};
  figures.ledger.contributed = {{-1, 1}};
  figures.waited_ns = {{RankFigures::kNobody, 1}, {0, 5}, {4, 0}};
  figures.sent_bytes = {{3, 1}};
  return figures;
}

TEST(Validate, FiguresCountRanksOfTheRunUpwards) {
  EXPECT_TRUE(check(figures(), world()).ok());
  static constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::function<void(RankFigures&)>> damages = {
      [](RankFigures& f) { f.rank = -1; },
      [](RankFigures& f) { f.rank = 5; },
      [](RankFigures& f) { f.view = -1; },
      [](RankFigures& f) { f.view = kHuge; },
      [](RankFigures& f) { f.ledger.produced = -1; },
      [](RankFigures& f) { f.ledger.committed = kHuge; },
      [](RankFigures& f) { f.ledger.dropped = -1; },
      [](RankFigures& f) { f.ledger.samples = kHuge; },
      [](RankFigures& f) { f.ledger.staleness[-2] = 1; },
      [](RankFigures& f) { f.ledger.staleness[kHuge] = 1; },
      [](RankFigures& f) { f.ledger.staleness[1] = -1; },
      [](RankFigures& f) { f.ledger.contributed[1] = kHuge; },
      [](RankFigures& f) { f.waited_ns[-2] = 1; },
      [](RankFigures& f) { f.waited_ns[5] = 1; },
      [](RankFigures& f) { f.waited_ns[0] = -1; },
      [](RankFigures& f) { f.sent_bytes[-1] = 1; },
      [](RankFigures& f) { f.sent_bytes[5] = 1; },
      [](RankFigures& f) {
        for (std::int64_t age = 0; age < 70'000; ++age) f.ledger.staleness[age] = 1;
      }};
  for (std::size_t i = 0; i < damages.size(); ++i) {
    SCOPED_TRACE(i);
    RankFigures damaged = figures();
    damages[i](damaged);
    expect_ignored(check(damaged, world()));
  }
}

RankReport report(Rank rank, FrozenTensor z, FrozenTensor buffers) {
  RankReport report;
  report.rank = rank;
  report.z = std::move(z);
  report.buffers = std::move(buffers);
  return report;
}

// What is added up over all ranks.
TEST(Validate, AReportHasNumbersThatAddUp) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  RankReport good = report(0, zeros(5), zeros(2));
  good.ledger.sent = good.ledger.received = 3;
  good.step_seconds.assign(StepTimes::kMost, 0.5);
  for (const double w : {0.0, 0.25, 1.0, 40.0}) {
    good.w = w;
    EXPECT_TRUE(check(good, world(), true).ok());
  }
  const std::vector<std::function<void(RankReport&)>> damages = {
      [](RankReport& r) { r.w = kNan; },
      [](RankReport& r) { r.w = std::numeric_limits<double>::infinity(); },
      [](RankReport& r) { r.w = -1; },
      [](RankReport& r) { r.ledger.produced = kHuge; },
      [](RankReport& r) { r.ledger.sent = -1; },
      [](RankReport& r) { r.ledger.received = kHuge; },
      [](RankReport& r) { r.ledger.staleness[1] = kHuge; },
      [](RankReport& r) { r.step_seconds.push_back(1); },
      [](RankReport& r) { r.step_seconds[7] = kNan; },
  };
  for (const auto& damage : damages) {
    RankReport bad = good;
    damage(bad);
    for (const bool with_model : {false, true}) expect_ignored(check(bad, world(), with_model));
  }
}

TEST(Validate, ModelsHaveTheModelsSize) {
  EXPECT_TRUE(check(report(0, zeros(5), zeros(2)), world(), true).ok());
  EXPECT_TRUE(check(report(3, zeros(3), {}), world(), true).ok()) << "a server's slice";
  EXPECT_TRUE(check(report(4, zeros(2), zeros(2)), world(), true).ok());
  EXPECT_TRUE(check(report(0, {}, {}), world(), false).ok()) << "none was asked for";
  expect_end(check(report(1, {}, zeros(2)), world(), true), "rank 1: its model came with 0");
  expect_end(check(report(1, zeros(4), zeros(2)), world(), true), "4 elements instead of 5");
  expect_end(check(report(1, zeros(5), {}), world(), true), "its buffers came with 0");
  expect_end(check(report(3, zeros(5), {}), world(), true), "5 elements instead of 3");
  expect_end(check(report(1, zeros(5, at::kDouble), zeros(2)), world(), true),
             "no vector of single precision");
  const FrozenTensor matrix = FrozenTensor::freeze(at::zeros({5, 1}));
  expect_end(check(report(1, matrix, zeros(2)), world(), true), "no vector of single precision");
  World unknown = world();
  unknown.parameters = unknown.buffers = -1;
  EXPECT_TRUE(check(report(1, zeros(77), {}), unknown, true).ok());
  // Beside servers the workers send their buffers alone.
  EXPECT_TRUE(check(EpochModel{0, 1, {}, zeros(2)}, world()).ok());
  expect_end(check(EpochModel{0, 1, {}, zeros(3)}, world()), "its buffers");
  expect_end(check(EpochModel{4, 1, zeros(3), {}}, world()), "3 elements instead of 2");
}

// The offers of other processes name what can be fetched.
TEST(Validate, OfferedModelsHaveTheModelsSize) {
  caf::actor_system_config config;
  caf::actor_system system{config};
  caf::scoped_actor self{system};
  const auto sender =
      caf::actor_cast<ModelSenderActor>(caf::actor_cast<caf::strong_actor_ptr>(self.ptr()));
  const auto reported = [&](const ModelOffer& offer) {
    RankReport report;
    report.rank = 1;
    report.offer = offer;
    return check(report, world(), true);
  };
  EXPECT_TRUE(reported({1, kLastModel, 5, 2, sender}).ok());
  expect_ignored(reported({0, kLastModel, 5, 2, sender}));  // of another rank
  expect_ignored(reported({1, 3, 5, 2, sender}));           // of an epoch
  expect_end(reported({1, kLastModel, 4, 2, sender}), "4 elements instead of 5");
  expect_end(reported({1, kLastModel, 5, -2, sender}), "-2 elements");
  expect_end(reported({1, kLastModel, 5, 2, {}}), "its model came with 0");
  // Beside servers the workers offer their buffers alone.
  EXPECT_TRUE(check(ModelOffer{0, 1, 0, 2, sender}, world()).ok());
  EXPECT_TRUE(check(ModelOffer{3, 1, 3, 0, sender}, world()).ok()) << "a server's slice";
  expect_end(check(ModelOffer{0, 1, 5, 2, sender}, world()), "5 elements instead of 0");
  expect_end(check(ModelOffer{4, 1, 3, 2, sender}, world()), "3 elements instead of 2");
  expect_ignored(check(ModelOffer{5, 1, 0, 2, sender}, world()));
  World changing = world();  // the two ranks behind the workers serve, or have served
  changing.spare = std::exchange(changing.servers, 0);
  for (const std::int64_t parameters : {0, 5})
    EXPECT_TRUE(check(ModelOffer{0, 1, parameters, 2, sender}, changing).ok());
  EXPECT_TRUE(check(ModelOffer{3, 1, 4, 0, sender}, changing).ok()) << "of any number of slices";
  expect_end(check(ModelOffer{0, 1, 4, 2, sender}, changing), "4 elements instead of 5");
  expect_ignored(check(ModelOffer{0, -1, 0, 2, sender}, world()));
  expect_ignored(check(ModelOffer{0, 1, 0, 2, {}}, world()));
}

TEST(Validate, TheRunWaitsLongerThanSilenceLasts) {
  using std::chrono::seconds;
  EXPECT_EQ(timeout_behind_silence(seconds(300)), seconds(300));
  EXPECT_EQ(timeout_behind_silence(seconds(1)), seconds(12));
}

}  // namespace validate_test
}  // namespace grapevine
