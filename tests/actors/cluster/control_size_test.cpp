// No message of the control plane is long: behind one, heartbeats would wait.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <caf/all.hpp>
#include <caf/binary_serializer.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/cluster/output/line_parts.hpp"
#include "actors/cluster/secure/basp_guard.hpp"
#include "actors/run/step_times.hpp"
#include "actors/run/validate.hpp"
#include "algorithms/roles/server/gem_figures.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "messages/text/cut_to.hpp"
#include "tests/fuzz/control_messages.hpp"

namespace grapevine {
namespace control_size_test {

// The most that `train` admits: workers, and beside them as many servers, which are ranks, too.
constexpr std::int32_t kWorkers = 4096, kProcesses = 4096;
constexpr std::int32_t kRanks = 2 * kWorkers;
constexpr std::int64_t kLarge = std::numeric_limits<std::int64_t>::max();

using Random = std::mt19937_64;
Random random_numbers;

std::int64_t any_number() { return static_cast<std::int64_t>(random_numbers()); }
std::int64_t any_count() { return static_cast<std::int64_t>(random_numbers() >> 14); }
// -1 among them.
std::int32_t any_place() {
  return static_cast<std::int32_t>(random_numbers() % (kWorkers + 1)) - 1;
}

const std::string& text() {  // of a path or a name
  static const std::string longest(4096, 'x');
  return longest;
}
// Of an error that names all processes: it is cut where it is written.
std::string long_text() { return std::string(100'000, 'x'); }

Ledger make_ledger() {
  Ledger ledger;
  Random random(1);
  Event event;
  for (const EventKind kind : {EventKind::applied, EventKind::contributed})
    for (int i = 0; i < 1'000'000; ++i) {
      event.kind = kind;
      // Evenly over the orders of magnitude, up to a run of 10^9 steps.
      event.staleness = static_cast<std::int64_t>(std::exp2(30.0 * (random() % 10'000) / 1e4));
      ledger.count(event);
    }
  EXPECT_GT(ledger.staleness.size(), 500U);
  for (auto* histogram : {&ledger.staleness, &ledger.contributed})
    for (auto& entry : *histogram) entry.second = any_count();
  return ledger;
}
const Ledger& ledger() {
  static const Ledger longest = make_ledger();
  return longest;
}

// All of `first`..`end - 1` but random ones that are lost.
std::vector<Rank> some_ranks(Rank first, Rank end) {
  std::vector<Rank> ranks;
  const std::uint64_t remain = 1 + random_numbers() % 16;
  for (Rank rank = first; rank < end; ++rank)
    if (random_numbers() % 16 < remain) ranks.push_back(rank);
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
  figures.waited_ns[RankFigures::kNobody] = kLarge;
  for (const Rank rank : some_ranks(0, kWorkers)) figures.waited_ns[rank] = any_number();
  for (const Rank rank : some_ranks(0, kWorkers)) figures.sent_bytes[rank] = random_numbers();
  return figures;
}
template <>
WaitReport longest<WaitReport>() {
  WaitReport report;
  for (Rank from = 0; from < 2 * kWorkers; ++from)
    report.waits.push_back({any_place(), static_cast<PayloadKind>(random_numbers() % 16),
                            any_number(), static_cast<std::int32_t>(any_number()),
                            static_cast<std::int32_t>(any_number())});
  report.queued_bytes = kLarge;
  return report;
}
template <>
HoldForView longest<HoldForView>() {
  return {kLarge, some_ranks(0, kRanks), some_ranks(0, kRanks), true};
}
template <>
InstallView longest<InstallView>() {
  InstallView view;
  for (auto* ranks : {&view.members, &view.behind, &view.joining, &view.heads})
    *ranks = some_ranks(0, kWorkers);
  view.new_servers = some_ranks(kWorkers, kRanks);
  view.settings = settings();
  return view;
}
template <>
ViewCounts longest<ViewCounts>() {
  ViewCounts view;
  // Of the most levels: two for each around a role.
  for (const Rank rank : some_ranks(0, kWorkers))
    for (int count = 0; count < 1 + 2 * kMostLevels; ++count)
      view.counts[rank].push_back(any_number());
  return view;
}
template <>
CheckSettings longest<CheckSettings>() {
  return {kLarge, settings()};
}
template <>
Join longest<Join>() {  // that is admitted
  Join join;
  for (std::string* one :
       {&join.job, &join.version, &join.host, &join.nonce, &join.challenge, &join.proof})
    *one = text();
  join.address = std::string(std::size_t{1} << 15, 'a');
  Join longer = join;
  for (int i = 0; check(longer).ok(); ++i) {
    join = longer;
    longer.identity["wiring.key-" + std::to_string(i)] = std::string(8, 'v');
  }
  EXPECT_GT(join.identity.size(), 100U);
  return join;
}
template <>
ExpectProcess longest<ExpectProcess>() {
  return {1, text(), longest<Join>().address};
}
template <>
Admission longest<Admission>() {
  Admission admission;
  admission.error.message = long_text();
  admission.out = text();
  admission.absent.assign(kProcesses, kProcesses);
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
caf::behavior idle() {
  return {[](int) {}};
}
// Of the only other process.
std::vector<PeerActor> make_peers() {
  caf::actor_system& system = fuzzing::actor_system();
  std::vector<PeerActor> peers;
  for (Rank rank = 1; rank < kRanks; ++rank) {
    for (auto others = random_numbers() % 8; others > 0; --others) system.next_actor_id();
    peers.push_back(caf::actor_cast<PeerActor>(system.spawn(&idle)));
  }
  return peers;
}
template <>
Ready longest<Ready>() {
  static const auto* const peers = new std::vector<PeerActor>(make_peers());
  Ready ready;
  ready.error.message = long_text();
  ready.nonce = text();
  ready.peers = *peers;
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
RankFailed longest<RankFailed>() {
  return {bad_input(long_text())};
}
template <>
RunEnded longest<RunEnded>() {
  RunEnded ended;
  ended.error.message = long_text();
  ended.checkpoint = text();
  return ended;
}

// In as many messages as it is sent in.
template <class Message>
std::vector<Message> messages_of(Message message) {
  return {std::move(message)};
}
std::vector<ViewCounts> messages_of(const ViewCounts& view) {
  return split_counts(view.view, view.counts);
}

template <class Message>
void expect_short(std::size_t place) {
  for (Message& message : messages_of(longest<Message>())) {
    std::vector<char> bytes;
    caf::binary_serializer sink{fuzzing::actor_system(), bytes};
    EXPECT_FALSE(sink(message));
    EXPECT_LE(bytes.size(), kMostControlBytes) << "message " << place << " of ControlMessages";
  }
}

template <std::size_t... I>
void expect_all_short(std::index_sequence<I...>) {
  (expect_short<std::tuple_element_t<I, fuzzing::ControlMessages>>(I), ...);
}

TEST(ControlMessages, TakeAtMost64KiBInTheLargestRun) {
  static_assert(16 * kMostControlBytes <= BaspGuard::kMostPayloadBytes);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_numbers.seed(seed);
    expect_all_short(std::make_index_sequence<std::tuple_size_v<fuzzing::ControlMessages>>());
  }
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
