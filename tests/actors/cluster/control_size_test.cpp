// No message of the control plane is long: behind one, heartbeats would wait.
#include <gtest/gtest.h>

#include <caf/binary_serializer.hpp>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/cluster/output/line_parts.hpp"
#include "actors/cluster/secure/basp_guard.hpp"
#include "actors/run/step_times.hpp"
#include "algorithms/roles/server/gem_figures.hpp"
#include "tests/fuzz/control_messages.hpp"

namespace grapevine {
namespace control_size_test {

// Of the run whose messages are measured.
struct MeasuredRun {
  std::int32_t ranks = 1024, processes = 128;
  std::size_t most = kMostControlBytes;
};
MeasuredRun run;
constexpr std::int64_t kLarge = std::numeric_limits<std::int64_t>::max();

const std::string& text() {  // of an error, a path or a name
  static const std::string longest(4096, 'x');
  return longest;
}

Ledger make_ledger() {
  Ledger ledger;
  std::mt19937_64 random(1);
  Event event;
  for (const EventKind kind : {EventKind::applied, EventKind::contributed})
    for (int i = 0; i < 1'000'000; ++i) {
      event.kind = kind;
      // Evenly over the orders of magnitude, up to a run of 10^9 steps.
      event.staleness = static_cast<std::int64_t>(std::exp2(30.0 * (random() % 10'000) / 1e4));
      ledger.count(event);
    }
  EXPECT_GT(ledger.staleness.size(), 500U);
  return ledger;
}
const Ledger& ledger() {
  static const Ledger longest = make_ledger();
  return longest;
}

std::vector<Rank> all_ranks() {
  std::vector<Rank> ranks(run.ranks);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::map<std::string, std::string> settings() {
  std::map<std::string, std::string> settings;
  for (int i = 0; i < 50; ++i) settings["wiring.key-" + std::to_string(i)] = std::string(64, 'v');
  return settings;
}

// The longest of each kind that grows with the run; all others have numbers and a few texts.
template <class Message>
Message longest() {
  return Message();
}
template <>
RankReport longest<RankReport>() {
  RankReport report;
  report.ledger = ledger();
  StepTimes times;
  for (std::size_t i = 0; i < 4 * StepTimes::kMost; ++i) times.add(1e-3);
  report.step_seconds = times.sample();
  const std::vector<TensorSpan> layout(1000);  // the tensors of a large model
  report.measures = GemFigures(layout, 4, 1000).measures();
  return report;
}
template <>
RankFigures longest<RankFigures>() {
  RankFigures figures;
  figures.ledger = ledger();
  for (Rank rank = -1; rank < run.ranks; ++rank) {
    figures.waited_ns[rank] = kLarge;
    if (rank >= 0) figures.sent_bytes[rank] = static_cast<std::uint64_t>(kLarge);
  }
  return figures;
}
template <>
WaitReport longest<WaitReport>() {
  WaitReport report;
  report.waits.assign(2 * run.ranks, {run.ranks, PayloadKind::chunk, kLarge, 1, 2});
  report.queued_bytes = kLarge;
  return report;
}
template <>
HoldForView longest<HoldForView>() {
  return {kLarge, all_ranks(), all_ranks(), true};
}
template <>
InstallView longest<InstallView>() {
  InstallView view;
  view.members = view.behind = view.joining = view.heads = view.new_servers = all_ranks();
  for (const Rank rank : view.members) view.counts[rank].assign(3, kLarge);  // levels
  view.before.assign(run.ranks, run.ranks);
  view.nodes_before = view.before;
  view.settings = settings();
  return view;
}
template <>
CheckSettings longest<CheckSettings>() {
  return {kLarge, settings()};
}
template <>
Join longest<Join>() {
  Join join;
  join.identity = settings();
  join.host = join.version = text();
  join.address = std::string(std::size_t{1} << 15, 'a');
  return join;
}
template <>
Admission longest<Admission>() {
  Admission admission;
  admission.error.message = admission.out = text();
  admission.absent.assign(run.processes, run.processes);
  return admission;
}
template <>
Addresses longest<Addresses>() {
  Addresses
      page;  // RendezvousState::on_ask_addresses() ends it at 32 KiB; one address is no longer
  constexpr std::size_t kOnAPage = 128;
  page.hosts.assign(kOnAPage, std::string(64, 'h'));
  page.addresses.assign(kOnAPage, std::string((std::size_t{32} << 10) / kOnAPage, 'a'));
  return page;
}
template <>
JobOffer longest<JobOffer>() {
  JobOffer offer;
  offer.text = std::string(std::size_t{48} << 10, 'j');
  offer.error.message = text();
  return offer;
}
template <>
Ready longest<Ready>() {
  Ready ready;
  ready.error.message = text();
  ready.peers.resize(run.ranks / run.processes);
  return ready;
}
// What check_length() admits, with the longest names.
std::vector<std::string> arguments() {
  std::vector<std::string> all;
  do {
    all.push_back("--set=wiring.key=" + std::string(47, 'v'));
  } while (check_length(all).ok());
  all.pop_back();
  EXPECT_GE(bytes_of(all), kMostArgumentBytes - 100);
  return all;
}
std::string name() { return std::string(kLongestName, 'n'); }
Seal seal() { return {1, 1, std::string(64, 'm')}; }
Error error() { return bad_input(std::string(kLongestErrorText, 'e')); }
template <>
SubmitJob longest<SubmitJob>() {
  SubmitJob submit;
  submit.seal = seal();
  submit.version = submit.user = name();
  submit.arguments = arguments();
  return submit;
}
template <>
StartRanks longest<StartRanks>() {
  StartRanks start;
  start.seal = seal();
  start.arguments = arguments();
  start.other_host = start.nonce = name();
  return start;
}
template <>
RankOutput longest<RankOutput>() {
  return {seal(), kLarge, 1, true, std::string(kLongestOutputLine, 'l'), true};
}
template <>
JobOutput longest<JobOutput>() {
  return {seal(), 1, true, std::string(kLongestOutputLine, 'l'), true};
}
template <>
RankExited longest<RankExited>() {
  return {seal(), kLarge, 1, 1, 1, error().message};
}
template <>
JobEnded longest<JobEnded>() {
  return {seal(), true, error()};
}
template <>
Enlist longest<Enlist>() {
  return {seal(), name(), name(), name(), 1, {}};
}
template <>
Enlisted longest<Enlisted>() {
  return {true, error(), 1, 1};
}
template <>
JobAccepted longest<JobAccepted>() {
  JobAccepted accepted;
  accepted.error = error();
  accepted.host = name();
  accepted.directory = text();
  return accepted;
}
template <>
ControlPlace longest<ControlPlace>() {
  return {seal(), true, error(), kLarge, 1, name()};
}
template <>
RunEnded longest<RunEnded>() {
  RunEnded ended;
  ended.error.message = ended.checkpoint = text();
  return ended;
}

template <class Message>
void expect_short(std::size_t place) {
  std::vector<char> bytes;
  caf::binary_serializer sink{fuzzing::actor_system(), bytes};
  Message message = longest<Message>();
  EXPECT_FALSE(sink(message));
  EXPECT_LE(bytes.size(), run.most) << "message " << place << " of ControlMessages";
}

template <std::size_t... I>
void expect_all_short(std::index_sequence<I...>) {
  (expect_short<std::tuple_element_t<I, fuzzing::ControlMessages>>(I), ...);
}

TEST(ControlMessages, TakeAtMost64KiBInARunOfAThousandRanks) {
  expect_all_short(std::make_index_sequence<std::tuple_size_v<fuzzing::ControlMessages>>());
}

// The most that `train` admits: less than what a process takes from another one.
TEST(ControlMessages, TakeAtMostAQuarterMebibyteInTheLargestRun) {
  static_assert(4 * (std::size_t{1} << 18) <= BaspGuard::kMostPayloadBytes);
  const MeasuredRun before = std::exchange(run, {4096, 4096, std::size_t{1} << 18});
  expect_all_short(std::make_index_sequence<std::tuple_size_v<fuzzing::ControlMessages>>());
  run = before;
}

// Of a user who gives too much: nothing of it is sent.
TEST(ControlMessages, TheOptionsOfAJobHaveABound) {
  std::vector<std::string> options = arguments();
  EXPECT_TRUE(check_length(options).ok());
  options.emplace_back(1000, 'x');
  const auto checked = check_length(options);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, Errc::bad_input);
  EXPECT_NE(checked.error().message.find("and a job of nodes has at most 49152"), std::string::npos)
      << checked.error().message;
}

TEST(ControlMessages, ALongTextIsCutBetweenCharacters) {
  EXPECT_EQ(cut_to("short", 5), "short");
  EXPECT_EQ(cut_to("shorter", 6), "sho…");
  EXPECT_EQ(cut_to("aäöü", 6), "aä…");
  EXPECT_EQ(cut_to("aäöü", 5), "a…");
  for (std::size_t bytes = 3; bytes < 40; ++bytes)
    EXPECT_LE(cut_to(std::string(50, 'x'), bytes).size(), bytes);
}

// Tensors of a model never travel here.
TEST(ControlMessages, ALongListIsNotWritten) {
  RankReport report;
  report.measures.put("z", at::zeros({(std::int64_t{64} << 10) / 4 + 1}));
  std::vector<char> bytes;
  caf::binary_serializer sink{fuzzing::actor_system(), bytes};
  EXPECT_TRUE(sink(report));
}

TEST(CoarseAge, IsExactBelow128AndWithin3PercentAbove) {
  std::set<std::int64_t> coarse;
  for (std::int64_t age = -1; age < 100'000; ++age) {
    const std::int64_t kept = coarse_age(age);
    EXPECT_LE(kept, age);
    EXPECT_GE(static_cast<double>(kept), age < 128 ? age : 0.968 * static_cast<double>(age)) << age;
    coarse.insert(kept);
  }
  EXPECT_LT(coarse.size(), 500U);
}

}  // namespace control_size_test
}  // namespace grapevine
