// A run that is saved and loaded at random moments, under pressure, is the run that was not: every
// message, every event and every bit of the models. Pressure is what fills the fields of a state:
// ranks that are slow, that stall inside an exchange, or that die.
#include <gtest/gtest.h>

#include <sstream>
#include <string_view>

#include "algorithms/wiring/make_parts.hpp"
#include "messages/codec.hpp"
#include "tests/sim/pressed_wirings.hpp"

namespace grapevine {
namespace saved_runs_test {

using sim::PressedWiring;
using sim::RoleWorld;
using sim::WorldConfig;

enum class Pressure { slow_ranks, stalls, death };
const std::vector<std::pair<Pressure, const char*>> kPressures = {
    {Pressure::slow_ranks, "slow ranks"}, {Pressure::stalls, "stalls"}, {Pressure::death, "death"}};

// Another one for each rank, step and element.
at::Tensor gradient(Rank rank, Step step) {
  return (at::arange(13, at::kFloat) * 0.7 + (1.3 * rank + 0.31 * static_cast<double>(step))).cos();
}

std::string line_of(const Envelope& envelope) {
  const std::vector<std::byte> bytes = encode(envelope);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::ostringstream line;
  line << "rank " << envelope.from << " to " << envelope.to << ", kind " << envelope.payload.index()
       << ", step " << envelope.stamp.step << ", version " << envelope.stamp.version << ", "
       << bytes.size() << " bytes of hash " << std::hash<std::string_view>()(text);
  return line.str();
}

// Waits aside: who resumes waits anew.
bool counts(const Event& event) {
  return event.kind != EventKind::wait_begin && event.kind != EventKind::wait_end;
}

std::string line_of(const Event& event) {
  std::ostringstream line;
  line << "event " << static_cast<int>(event.kind) << " of peer " << event.peer << ", origin "
       << event.stamp.origin << ", its step " << event.stamp.step << ", version "
       << event.stamp.version << ", step " << event.step << ", staleness " << event.staleness
       << ", bytes " << event.bytes;
  return line.str();
}

struct Account {
  std::vector<std::string> sent;                 // in their order
  std::vector<std::vector<std::string>> events;  // by rank
  std::vector<ModelState> models;
  std::int64_t saved = 0;  // times
};

// One run; all of its choices but the moments of saving are the same with and without it.
class PressedRun {
 public:
  PressedRun(const PressedWiring& wiring, Pressure pressure, std::uint64_t seed, bool is_saved)
      : config_(config_under(wiring, pressure, seed)),
        pressure_(pressure),
        is_saved_(is_saved),
        all_(all_ranks_of(config_.plan, config_.ranks)),
        schedule_(mix_seed(seed, 1)),
        moments_(mix_seed(seed, 2)),
        world_(config_, [at_z = wiring.model_waits_for_the_gradient()](Rank rank, Step step,
                                                                       const at::Tensor& z) {
          return at_z ? gradient(rank, step) + 0.25 * z : gradient(rank, step);
        }) {
    world_.watch([this](const Envelope& envelope, bool delivered) {
      if (delivered)
        ++delivered_;
      else
        account_.sent.push_back(line_of(envelope));
    });
    next_ = 10 + static_cast<std::int64_t>(schedule_() % 60);
  }

  Account run() {
    world_.start();
    do {
      GRAPEVINE_CHECK(world_.event_count() < 1'000'000, "the run does not come to an end");
      if (is_saved_ && moments_() % 12 == 0) {
        world_.save_and_load();
        ++account_.saved;
      }
      press();
      // A restart sets timers anew, so that they may fire in another order: no stall lasts until
      // then.
      if (world_.waits_for_a_timer()) release();
    } while (world_.step() || release());
    for (Rank rank = 0; rank < all_; ++rank) {
      EXPECT_TRUE(rank == dead_ || world_.finished(rank)) << "rank " << rank;
      account_.models.push_back(world_.model(rank));
      account_.events.emplace_back();
      for (const Event& event : world_.events(rank))
        if (counts(event)) account_.events.back().push_back(line_of(event));
    }
    return std::move(account_);
  }

 private:
  static WorldConfig config_under(const PressedWiring& wiring, Pressure pressure,
                                  std::uint64_t seed) {
    WorldConfig config = sim::config_of(wiring, seed);
    if (pressure != Pressure::stalls) config.slowness = {{0, 0.3}, {1, 0.95}};
    return config;
  }

  // By the number of messages: timers, which a restart sets anew, count for nothing.
  void press() {
    if (pressure_ == Pressure::slow_ranks || delivered_ < next_) return;
    if (pressure_ == Pressure::death) {
      if (dead_ >= 0) return;
      dead_ = drawn(config_.ranks);
      return world_.kill(dead_);
    }
    if (release()) {
      next_ = delivered_ + static_cast<std::int64_t>(schedule_() % 40);
      return;
    }
    stalled_ = drawn(all_);
    world_.stall(stalled_);
    next_ = delivered_ + 20 + static_cast<std::int64_t>(schedule_() % 80);
  }

  bool release() {
    if (stalled_ < 0) return false;
    world_.go_on(std::exchange(stalled_, -1));
    return true;
  }

  Rank drawn(std::int32_t ranks) {
    return static_cast<Rank>(schedule_() % static_cast<std::uint64_t>(ranks));
  }

  const WorldConfig config_;
  const Pressure pressure_;
  const bool is_saved_;
  const std::int32_t all_;
  Rng schedule_, moments_;
  Account account_;
  RoleWorld world_;
  std::int64_t delivered_ = 0;
  std::int64_t next_ = 0;
  Rank stalled_ = -1;
  Rank dead_ = -1;
};

void expect_same(const std::vector<std::string>& straight, const std::vector<std::string>& saved) {
  for (std::size_t i = 0; i < std::min(straight.size(), saved.size()); ++i)
    ASSERT_EQ(straight[i], saved[i]) << "the first that differs, number " << i;
  ASSERT_EQ(straight.size(), saved.size());
}

void expect_same(const Account& straight, const Account& saved) {
  {
    SCOPED_TRACE("messages");
    ASSERT_NO_FATAL_FAILURE(expect_same(straight.sent, saved.sent));
  }
  for (std::size_t rank = 0; rank < straight.models.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    ASSERT_NO_FATAL_FAILURE(expect_same(straight.events[rank], saved.events[rank]));
    const ModelState &a = straight.models[rank], &b = saved.models[rank];
    EXPECT_TRUE(at::equal(a.x.read(), b.x.read())) << a.x.read() << b.x.read();
    EXPECT_EQ(a.w, b.w);
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.epoch, b.epoch);
  }
}

class SavedRuns : public testing::TestWithParam<PressedWiring> {};

TEST_P(SavedRuns, AreTheRunsThatWereNotSaved) {
  for (const auto& [pressure, name] : kPressures) {
    if (pressure == Pressure::death && !GetParam().survives_a_death()) continue;
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE(std::string(name) + ", seed=" + std::to_string(seed));
      const Account straight = PressedRun(GetParam(), pressure, seed, false).run();
      const Account saved = PressedRun(GetParam(), pressure, seed, true).run();
      EXPECT_GT(saved.saved, 3) << "nothing was tested";
      ASSERT_NO_FATAL_FAILURE(expect_same(straight, saved));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Wirings, SavedRuns, testing::ValuesIn(sim::pressed_wirings()),
                         [](const auto& info) { return info.param.name; });

}  // namespace saved_runs_test
}  // namespace grapevine
