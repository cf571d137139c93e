// The checker against an oracle: random programs, whose executed operations become a graph of what
// happened before what, by paths instead of clocks.
#include "tests/gpu/cuda/race/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <iterator>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/gpu/cuda/device/device.hpp"
#include "tests/gpu/cuda/race/checker.hpp"

namespace racecheck {
namespace {

using grapevine::cuda::DeviceArray;

std::vector<Event> events;  // of the last launch, in the order in which they were executed

// ---- the oracle

class Graph {
 public:
  explicit Graph(const std::vector<Event>& log) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> last;  // of each actor
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::size_t> barriers;
    for (const Event& event : log) {
      std::size_t node = nodes_.size();
      if (event.sync != Sync::none) {
        // One node for all that meet: the block, or the two actors of a warp.
        const std::uint32_t group = event.sync == Sync::block ? 2 : event.actor / 2;
        node = barriers.emplace(std::tuple(event.block, event.round, group), node).first->second;
      }
      if (node == nodes_.size()) nodes_.push_back(event);
      const auto [at, is_first] = last.emplace(std::pair(event.block, event.actor), node);
      if (!is_first) before_[at->second].set(node);
      at->second = node;
    }
    close();
    while (add_fences()) close();
  }

  bool has_race() const {
    for (std::size_t a = 0; a < nodes_.size(); ++a)
      for (std::size_t b = a + 1; b < nodes_.size(); ++b)
        if (conflict(nodes_[a], nodes_[b]) && !before_[a][b] && !before_[b][a]) return true;
    return false;
  }

 private:
  static constexpr std::size_t kMost = 256;

  static bool accesses(const Event& e) {
    return e.step.op == Op::read || e.step.op == Op::write || e.step.op == Op::atomic;
  }
  static bool same_memory(const Event& a, const Event& b) {
    return a.step.variable == b.step.variable && (a.step.variable < kGlobals || a.block == b.block);
  }
  static bool conflict(const Event& a, const Event& b) {
    return accesses(a) && accesses(b) && same_memory(a, b) &&
           (a.step.op != b.step.op || a.step.op == Op::write);
  }

  void close() {
    for (std::size_t via = 0; via < nodes_.size(); ++via)
      for (std::size_t from = 0; from < nodes_.size(); ++from)
        if (before_[from][via]) before_[from] |= before_[via];
  }

  // fence, atomic … atomic on the same, fence: the first fence is before the second.
  bool add_fences() {
    const auto is = [&](std::size_t node, Op op) { return nodes_[node].step.op == op; };
    bool added = false;
    for (std::size_t a = 0; a < nodes_.size(); ++a)
      for (std::size_t b = a + 1; b < nodes_.size(); ++b) {
        if (!is(a, Op::atomic) || !is(b, Op::atomic) || !same_memory(nodes_[a], nodes_[b]))
          continue;
        for (std::size_t f = 0; f < nodes_.size(); ++f)
          for (std::size_t g = 0; g < nodes_.size(); ++g)
            if (is(f, Op::fence) && is(g, Op::fence) && f != g && before_[f][a] && before_[b][g] &&
                !before_[f][g])
              before_[f].set(g), added = true;
      }
    return added;
  }

  std::vector<Event> nodes_;
  std::array<std::bitset<kMost>, kMost> before_{};
};

// ---- programs

Program random_program(std::mt19937& rng) {
  Program program;
  program.rounds = 1 + rng() % 6;
  // Some have few accesses and many fences, some the contrary.
  std::discrete_distribution<std::uint32_t> op(
      {6, static_cast<double>(rng() % 2), static_cast<double>(rng() % 3) / 2,
       static_cast<double>(rng() % 4), static_cast<double>(rng() % 5)});
  std::discrete_distribution<std::uint32_t> sync({1, 1, static_cast<double>(rng() % 4)});
  // Atomics have variables of their own in most programs, as arrivals do.
  const bool apart = rng() % 4 != 0;
  program.steps.resize(kProgramBlocks * program.rounds * kActors * kSlots);
  for (Step& step : program.steps) {
    step.op = static_cast<Op>(op(rng));
    const auto variable = static_cast<std::uint32_t>(rng() % kVariables);
    step.variable = variable;
    if (apart) step.variable = step.op == Op::atomic ? 0U : std::max(variable, 1U);
  }
  program.syncs.resize(kProgramBlocks * program.rounds);
  for (Sync& s : program.syncs) s = static_cast<Sync>(sync(rng));
  return program;
}

// Each block enters by an atomic and a fence, reads or writes, and leaves by a fence and an atomic,
// by whichever actor, with barriers between: that is in order. Then a few pieces are taken out.
Program almost_ordered_program(std::mt19937& rng) {
  constexpr Op kOps[] = {Op::atomic, Op::fence, Op::write, Op::fence, Op::atomic};
  Program program;
  program.rounds = std::size(kOps);
  program.steps.resize(kProgramBlocks * program.rounds * kActors * kSlots, Step{Op::nothing, 0});
  program.syncs.resize(kProgramBlocks * program.rounds, Sync::block);
  const auto is_flawed = [&] { return rng() % 32 == 0; };
  for (std::uint32_t at = 0; at < kProgramBlocks * program.rounds; ++at) {
    Op op = kOps[at % program.rounds];
    if (op == Op::write && rng() % 4 == 0) op = Op::read;
    const std::size_t actor = rng() % kActors;
    const bool is_access = op == Op::write || op == Op::read;
    if (!is_flawed()) program.steps[(at * kActors + actor) * kSlots] = {op, is_access ? 1U : 0U};
    if (is_flawed()) program.syncs[at] = rng() % 2 == 0 ? Sync::warp : Sync::none;
  }
  return program;
}

bool checker_finds_race(const Program& program) {
  DeviceArray<Step> steps(program.steps);
  DeviceArray<Sync> syncs(program.syncs);
  DeviceArray<std::uint32_t> memory(std::vector<std::uint32_t>(kGlobals));
  events.clear();
  EXPECT_EQ(run_program(steps.data(), syncs.data(), program.rounds, memory.data()), cudaSuccess)
      << cudaGetErrorString(cudaErrorIllegalAddress);
  const auto findings = Checker::instance().take_findings();
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.what == Finding::What::race; });
}

TEST(RandomPrograms, HaveTheRacesThatPathsSay) {
  constexpr std::uint32_t kPrograms = 2000;
  std::size_t with_race = 0;
  for (std::uint32_t seed = 1; seed <= kPrograms; ++seed) {
    std::mt19937 rng(seed);
    const Program program = seed % 2 == 0 ? random_program(rng) : almost_ordered_program(rng);
    emulation::reseed(seed);
    const bool found = checker_finds_race(program);
    ASSERT_EQ(found, Graph(events).has_race()) << "program of seed " << seed;
    with_race += found ? 1 : 0;
  }
  EXPECT_GT(with_race, kPrograms / 5);
  EXPECT_LT(with_race, kPrograms * 4 / 5);
}

}  // namespace

void log_event(const Event& event) {
  const emulation::InRuntime runtime;
  events.push_back(event);
}

}  // namespace racecheck
