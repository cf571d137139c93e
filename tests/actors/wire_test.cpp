// What crosses processes comes out as it went in: every field.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>

#include <cstring>
#include <limits>
#include <random>

#include "actors/protocol.hpp"

namespace grapevine {
namespace wire_test {

template <class T>
T through_the_wire(T value) {
  caf::actor_system_config config;
  caf::actor_system system{config};
  std::vector<char> bytes;
  caf::binary_serializer sink{system, bytes};
  EXPECT_FALSE(sink(value));
  T copy;
  caf::binary_deserializer source{system, bytes};
  EXPECT_FALSE(source(copy));
  return copy;
}

TEST(Wire, ALedgerKeepsAllItsFigures) {
  Ledger ledger;
  ledger.produced = 11;
  ledger.committed = 7;
  ledger.dropped = 3;
  ledger.samples = 320;
  ledger.sent = 21;
  ledger.received = 20;
  ledger.sent_before = 5;
  ledger.bytes_sent = 1ULL << 40U;
  ledger.staleness = {{0, 4}, {2, 1}};
  ledger.contributed = {{-1, 2}, {0, 5}, {3, 1}};
  const Ledger copy = through_the_wire(ledger);
  EXPECT_EQ(copy.produced, ledger.produced);
  EXPECT_EQ(copy.committed, ledger.committed);
  EXPECT_EQ(copy.dropped, ledger.dropped);
  EXPECT_EQ(copy.samples, ledger.samples);
  EXPECT_EQ(copy.sent, ledger.sent);
  EXPECT_EQ(copy.received, ledger.received);
  EXPECT_EQ(copy.sent_before, ledger.sent_before);
  EXPECT_EQ(copy.bytes_sent, ledger.bytes_sent);
  EXPECT_EQ(copy.staleness, ledger.staleness);
  EXPECT_EQ(copy.contributed, ledger.contributed);
}

TEST(Wire, FiguresKeepTheirMaps) {
  RankFigures figures;
  figures.rank = 2;
  figures.view = 1;
  figures.ledger.produced = 9;
  figures.waited_ns = {{RankFigures::kNobody, 5}, {0, std::int64_t{1} << 60}};
  figures.sent_bytes = {{1, 1ULL << 63U}};
  const RankFigures copy = through_the_wire(figures);
  EXPECT_EQ(copy.rank, 2);
  EXPECT_EQ(copy.view, 1);
  EXPECT_EQ(copy.ledger.produced, 9);
  EXPECT_EQ(copy.waited_ns, figures.waited_ns);
  EXPECT_EQ(copy.sent_bytes, figures.sent_bytes);
}

TEST(Wire, ARankReportKeepsItsOfferAndTimes) {
  RankReport report;
  report.rank = 3;
  report.step = 99;
  report.w = 0.75;
  report.offer.rank = 3;
  report.offer.epoch = kLastModel;
  report.offer.parameters = 5;
  report.offer.buffers = 2;
  report.step_seconds = {0.5, 0.25};
  report.measures.put("x", 1.5);
  const RankReport copy = through_the_wire(report);
  EXPECT_EQ(copy.rank, 3);
  EXPECT_EQ(copy.step, 99);
  EXPECT_EQ(copy.w, 0.75);
  EXPECT_EQ(copy.offer.rank, 3);
  EXPECT_EQ(copy.offer.epoch, kLastModel);
  EXPECT_EQ(copy.offer.parameters, 5);
  EXPECT_EQ(copy.offer.buffers, 2);
  EXPECT_FALSE(copy.offer.sender);
  EXPECT_EQ(copy.step_seconds, report.step_seconds);
  EXPECT_EQ(*copy.measures.number("x"), 1.5);
}

StateDict some_state() {
  StateDict state;
  state.put("model.x", at::arange(5, at::kFloat));
  state.put("indices", at::arange(6, at::kLong).reshape({2, 3}));
  state.put("bytes", at::arange(7, at::kByte));
  state.put("empty", at::zeros({0}));
  state.put("w", 0.75);
  state.put("step", std::int64_t{-9});
  state.put("rng", std::string("any\0bytes\xff", 10));
  return state;
}

TEST(Wire, AStateKeepsEveryEntry) {
  const StateDict copy = through_the_wire(some_state());
  const StateDict expected = some_state();
  ASSERT_EQ(copy.entries().size(), expected.entries().size());
  for (const std::string name : {"model.x", "indices", "bytes", "empty"}) {
    EXPECT_TRUE(at::equal(*copy.tensor(name), *expected.tensor(name))) << name;
    EXPECT_EQ(copy.tensor(name)->scalar_type(), expected.tensor(name)->scalar_type()) << name;
  }
  EXPECT_EQ(*copy.number("w"), 0.75);
  EXPECT_EQ(*copy.integer("step"), -9);
  EXPECT_EQ(*copy.text("rng"), *expected.text("rng"));
}

// Nothing is thrown and nothing is read beyond the end, whatever the bytes say.
TEST(Wire, DamagedBytesAreAnErrorOrAnotherMessage) {
  caf::actor_system_config config;
  caf::actor_system system{config};
  RankReport report;
  report.measures = some_state();
  std::vector<char> good;
  caf::binary_serializer sink{system, good};
  ASSERT_FALSE(sink(report));
  for (std::size_t size = 0; size < good.size(); ++size) {
    const std::vector<char> cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    RankReport copy;
    caf::binary_deserializer source{system, cut};
    EXPECT_TRUE(source(copy)) << size;
  }
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::vector<char> bytes = good;
    for (std::uint64_t flips = 1 + random() % 8; flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<char>(1U << (random() % 8));
    RankReport copy;
    caf::binary_deserializer source{system, bytes};
    static_cast<void>(source(copy));
  }
}

TEST(Wire, AnErrorIsOneLine) {
  const Error copy =
      through_the_wire(Error{Errc::timeout, "first\nsecond\x1b[31m" + std::string(100'000, 'x')});
  EXPECT_EQ(copy.code, Errc::timeout);
  EXPECT_EQ(copy.message.substr(0, 17), "first second [31m");
  EXPECT_LE(copy.message.size(), 4096U);
  // Which of the 4,096 bytes is the first of a character depends on what is in front of it.
  for (const std::string front : {"", "x"}) {
    std::string text = front;
    for (int i = 0; i < 4096; ++i) text += "ü";
    const std::string cut = through_the_wire(Error{Errc::timeout, text}).message;
    EXPECT_LE(cut.size(), 4096U);
    EXPECT_EQ((cut.size() - front.size()) % 2, 1U) << "letters of two bytes each, and the mark";
    EXPECT_EQ(cut.substr(cut.size() - 5), "ü…");
  }
}

TEST(Wire, AStepReportKeepsEveryFigure) {
  StepReport report;
  report.rank = 1;
  report.step = 2;
  double next = 3;
  for (double* figure : {&report.epoch, &report.epochs_done, &report.time_s, &report.batch_time_s,
                         &report.exchange_time_s, &report.data_time_s, &report.loss, &report.top1,
                         &report.top5, &report.lr, &report.staleness})
    *figure = next++;
  report.samples = 64;
  report.logged = false;
  report.view = 5;
  report.taken = 6;
  const StepReport copy = through_the_wire(report);
  EXPECT_EQ(copy.rank, 1);
  EXPECT_EQ(copy.step, 2);
  next = 3;
  for (const double figure :
       {copy.epoch, copy.epochs_done, copy.time_s, copy.batch_time_s, copy.exchange_time_s,
        copy.data_time_s, copy.loss, copy.top1, copy.top5, copy.lr, copy.staleness})
    EXPECT_EQ(figure, next++);
  EXPECT_EQ(copy.samples, 64);
  EXPECT_FALSE(copy.logged);
  EXPECT_EQ(copy.view, 5);
  EXPECT_EQ(copy.taken, 6);
}

// Figures that were not measured, that overflowed, and that are too small for CAF's own packing.
TEST(Wire, EveryDoubleArrivesWithItsBits) {
  using Limits = std::numeric_limits<double>;
  for (const double value :
       {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), Limits::denorm_min(),
        Limits::max(), Limits::lowest(), -0.0, 0.1, -1.0 / 3}) {
    const auto same = [value](double other) {
      return std::memcmp(&value, &other, sizeof value) == 0;
    };
    StepReport report;
    report.loss = report.top1 = report.staleness = value;
    const StepReport copy = through_the_wire(report);
    EXPECT_TRUE(same(copy.loss) && same(copy.top1) && same(copy.staleness)) << value;
    RankReport last;
    last.w = value;
    last.measures.put("energy", value);
    last.step_seconds = {1, value};
    const RankReport last_copy = through_the_wire(last);
    EXPECT_TRUE(same(last_copy.w)) << value;
    ASSERT_EQ(last_copy.step_seconds.size(), 2U);
    EXPECT_TRUE(same(last_copy.step_seconds[1])) << value;
    EXPECT_TRUE(same(*last_copy.measures.number("energy"))) << value;
  }
}

}  // namespace wire_test
}  // namespace grapevine
