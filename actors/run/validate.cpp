#include "actors/run/validate.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "actors/run/step_times.hpp"
#include "algorithms/parts/server_rules.hpp"
#include "algorithms/role.hpp"
#include "messages/text/control_characters.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kLongestAddress = 1 << 15;  // of a transport
constexpr std::size_t kMostOptions = 4096;
// Of a figure, so that the sums over all ranks stay exact in the output for Prometheus.
constexpr std::int64_t kMostCount = std::int64_t{1} << 50;
constexpr std::size_t kMostAges = 1 << 10;    // different ones in a histogram: see coarse_age()
constexpr std::size_t kMostWaitsOnARank = 2;  // a part of a sum and one of its tally
constexpr double kMostEpochs = 1e12;  // so that whole numbers of them, and of parts, can be counted

Error stray(const std::string& what) { return {Errc::protocol, what}; }

Expected<void> check_rank(const char* what, Rank rank, std::int32_t ranks) {
  if (rank >= 0 && rank < ranks) return {};
  return stray(fmt::format("{} of rank {} in a run of {}", what, rank, ranks));
}

bool counts_well(const Ledger& ledger) {
  const auto is_count = [](std::int64_t count) { return count >= 0 && count <= kMostCount; };
  for (const std::int64_t count :
       {ledger.produced, ledger.committed, ledger.dropped, ledger.samples, ledger.sent,
        ledger.received, ledger.sent_before})
    if (!is_count(count)) return false;
  for (const auto* histogram : {&ledger.staleness, &ledger.contributed}) {
    if (histogram->size() > kMostAges) return false;
    for (const auto& [age, count] : *histogram)
      if (age < -1 || age > kMostCount || !is_count(count)) return false;
  }
  return true;
}

// One line, of a length that a line has.
Expected<void> check_text(const char* what, const std::string& text) {
  if (text.size() <= kLongestForeignText && !has_control_characters(text)) return {};
  return stray(std::string(what) + " with an invalid text");
}

Error unusable(Rank rank, const std::string& what, std::int64_t expected, std::int64_t found) {
  return {Errc::failed,
          fmt::format("rank {}: its {} came with {} elements instead of {}: is memory short, there "
                      "or in process 0?",
                      rank, what, found, expected)};
}

// `expected`: elements; -1: not known. An empty tensor may be left out.
Expected<void> check_tensor(Rank rank, const std::string& what, const FrozenTensor& tensor,
                            std::int64_t expected) {
  const bool flat =
      !tensor.defined() || (tensor.sizes().size() == 1 && tensor.dtype() == at::ScalarType::Float);
  if (!flat)
    return Error{Errc::failed,
                 fmt::format("rank {}: its {} is no vector of single precision", rank, what)};
  if (expected >= 0 && tensor.numel() != expected)
    return unusable(rank, what, expected, tensor.numel());
  return {};
}

// Elements of the parameters that a rank has; -1: not known, as of a server of the wiring before.
std::int64_t parameters_of(Rank rank, const World& world) {
  if (rank < world.workers() || world.parameters < 0) return world.parameters;
  const std::int32_t server = rank - world.workers();
  return server < world.servers ? slice_of(world.parameters, world.servers, server).size : -1;
}

Expected<void> check_model(Rank rank, const FrozenTensor& z, const FrozenTensor& buffers,
                           const World& world) {
  if (auto checked = check_tensor(rank, "model", z, parameters_of(rank, world)); !checked)
    return checked;
  // A server may be without.
  const bool server = rank >= world.workers();
  const std::int64_t own = server && !buffers.defined() ? -1 : world.buffers;
  return check_tensor(rank, "buffers", buffers, own);
}

Expected<void> check_offered(Rank rank, const char* what, std::int64_t found,
                             std::int64_t expected) {
  if (found >= 0 && (expected < 0 || found == expected)) return {};
  return Error{Errc::failed, fmt::format("rank {}: its {} has {} elements instead of {}", rank,
                                         what, found, expected)};
}

// `parameters`: false: beside servers a worker offers its buffers alone.
Expected<void> check_offer(const ModelOffer& offer, const World& world, bool parameters) {
  const std::int64_t expected = parameters ? parameters_of(offer.rank, world) : 0;
  if (auto checked = check_offered(offer.rank, "model", offer.parameters, expected); !checked)
    return checked;
  const bool server = offer.rank >= world.workers();
  return check_offered(offer.rank, "buffers", offer.buffers,
                       server && offer.buffers == 0 ? 0 : world.buffers);
}

}  // namespace

Expected<void> check(const StepReport& report, const World& world) {
  if (auto checked = check_rank("a step", report.rank, world.workers()); !checked) return checked;
  const auto counts = [](double epochs) { return epochs >= 0 && epochs <= kMostEpochs; };
  if (report.step < 0 || report.samples < 0 || report.view < 0 || report.taken < 0 ||
      report.taken > kMostCount || !counts(report.epoch) || !counts(report.epochs_done))
    return stray("a step of rank " + std::to_string(report.rank) + " with invalid numbers");
  return {};
}

Expected<void> check(const RankFigures& figures, const World& world) {
  if (auto checked = check_rank("figures", figures.rank, world.ranks); !checked) return checked;
  const Error invalid = stray(fmt::format("figures of rank {} with invalid numbers", figures.rank));
  if (!counts_well(figures.ledger) || figures.view < 0 || figures.view > kMostCount) return invalid;
  for (const auto& [awaited, time_ns] : figures.waited_ns)
    if ((awaited != RankFigures::kNobody && !world.has_rank(awaited)) || time_ns < 0)
      return invalid;
  for (const auto& [receiver, bytes] : figures.sent_bytes)
    if (!world.has_rank(receiver)) return invalid;
  return {};
}

Expected<void> check(const WaitReport& report, const World& world) {
  if (auto checked = check_rank("waits", report.rank, world.ranks); !checked) return checked;
  const Error invalid = stray(fmt::format("waits of rank {} with invalid numbers", report.rank));
  if (static_cast<std::uint8_t>(report.worker) > kLastWorkerActivity || report.step < 0 ||
      report.computing < 0 || report.computing_ns < -1 || report.waiting_ns < -1 ||
      report.queued_bytes < 0 || report.queued_bytes > kMostCount)
    return invalid;
  if (report.waits.size() > static_cast<std::size_t>(world.ranks) * kMostWaitsOnARank)
    return invalid;
  for (const Awaited& one : report.waits)
    if ((one.from != -1 && !world.has_rank(one.from)) ||
        static_cast<std::uint8_t>(one.payload) > kLastPayloadKind)
      return invalid;
  return {};
}

Expected<void> check(const RankFinished& finished, const World& world) {
  return check_rank("the last step", finished.rank, world.ranks);
}

Expected<void> check(const RankSnapshot& snapshot, const World& world) {
  if (auto checked = check_rank("a snapshot", snapshot.rank, world.ranks); !checked) return checked;
  if (snapshot.step < 0)
    return stray("a snapshot of rank " + std::to_string(snapshot.rank) + " at a negative step");
  return {};
}

Expected<void> check(const StateStored& stored, const World& world) {
  if (auto checked = check_rank("a stored state", stored.rank, world.ranks); !checked)
    return checked;
  if (stored.step >= 0) return {};
  return stray(fmt::format("a stored state of rank {} at a negative step", stored.rank));
}

Expected<void> check(const SnapshotRefused& refused, const World& world) {
  if (refused.rank == -1) return {};  // the folder for states was
  return check_rank("a snapshot that was refused", refused.rank, world.ranks);
}

Expected<void> check(const RankReport& report, const World& world, bool with_model) {
  if (auto checked = check_rank("a report", report.rank, world.ranks); !checked) return checked;
  if (report.step < 0)
    return stray("a report of rank " + std::to_string(report.rank) + " at a negative step");
  const auto& times = report.step_seconds;
  // A weight of push-sum: 1 where there is none, as of a server.
  const bool adds_up = counts_well(report.ledger) && std::isfinite(report.w) && report.w >= 0 &&
                       times.size() <= StepTimes::kMost &&
                       std::all_of(times.begin(), times.end(),
                                   [](double seconds) { return std::isfinite(seconds); });
  if (!adds_up) return stray(fmt::format("a report of rank {} with invalid numbers", report.rank));
  if (!with_model) return {};
  if (!report.offer.sender) return check_model(report.rank, report.z, report.buffers, world);
  if (report.offer.rank != report.rank || report.offer.epoch != kLastModel)
    return stray(fmt::format("a report of rank {} with the model of another", report.rank));
  return check_offer(report.offer, world, true);
}

// Beside servers a worker sends its buffers alone. Where the wiring may have changed a moment ago,
// either is right.
static bool is_beside_servers(Rank rank, std::int64_t parameters, const World& world) {
  if (rank >= world.workers()) return false;
  return world.spare > 0 ? parameters == 0 : world.servers > 0;
}

Expected<void> check(const EpochModel& model, const World& world) {
  if (auto checked = check_rank("a model", model.rank, world.ranks); !checked) return checked;
  if (model.epoch < 0)
    return stray("a model of rank " + std::to_string(model.rank) + " of a negative epoch");
  if (is_beside_servers(model.rank, model.z.numel(), world))
    return check_tensor(model.rank, "buffers", model.buffers,
                        model.buffers.defined() ? world.buffers : -1);
  return check_model(model.rank, model.z, model.buffers, world);
}

Expected<void> check(const ModelOffer& offer, const World& world) {
  if (auto checked = check_rank("a model", offer.rank, world.ranks); !checked) return checked;
  if (offer.epoch < 0 || !offer.sender)
    return stray(fmt::format("a model of rank {} that it cannot send", offer.rank));
  return check_offer(offer, world, !is_beside_servers(offer.rank, offer.parameters, world));
}

Expected<void> check(const ProcessClosed& closed, const World& world) {
  if (closed.process > 0 && closed.process < world.processes) return {};
  return stray(
      fmt::format("the end of process {} in a run of {}", closed.process, world.processes));
}

Expected<void> check(const PeerLost& lost, const World& world) {
  return check_rank("the loss", lost.peer, world.ranks);
}

Expected<void> check(const TakeSnapshot& take, const World& world) {
  return check_rank("a cut whose states go", take.receiver, world.ranks);
}

Expected<void> check(const LinkLost& lost, const World& world) {
  for (const Rank rank : {lost.reporter, lost.peer})
    if (auto checked = check_rank("the loss of a link", rank, world.ranks); !checked)
      return checked;
  return {};
}

namespace {

// Ranks below `end`, ascending.
Expected<void> check_members(const char* what, const std::vector<Rank>& members, Rank end) {
  for (const Rank rank : members)
    if (auto checked = check_rank(what, rank, end); !checked) return checked;
  const bool ascend =
      std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) == members.end();
  return ascend && !members.empty()
             ? Expected<void>()
             : Expected<void>(stray(std::string(what) + " of ranks without order"));
}

}  // namespace

Expected<void> check(const HoldForView& hold, const World& world) {
  if (auto valid = check_members("a proposed view", hold.members, world.ranks); !valid)
    return valid;
  if (hold.arriving.empty()) return {};
  return check_members("those that a proposed view is joined by", hold.arriving, world.ranks);
}

Expected<void> check(const Traffic& traffic, const World& world) {
  return check_rank("counts of messages", traffic.rank, world.ranks);
}

namespace {

// Of a role made of others: one, and two more for each level around another.
bool are_counts(const std::vector<std::int64_t>& counts) {
  constexpr std::size_t kMostCounts = 64;
  return counts.size() <= kMostCounts &&
         std::all_of(counts.begin(), counts.end(),
                     [](std::int64_t count) { return count >= Role::kFollows; });
}

}  // namespace

Expected<void> check(const ViewClosed& closed, const World& world) {
  if (auto checked = check_rank("a closed view", closed.rank, world.ranks); !checked)
    return checked;
  if (closed.operations >= Role::kFollows && closed.step >= 0 && closed.taken >= 0 &&
      closed.taken <= kMostCount && closed.epoch >= 0 && closed.epoch <= kMostEpochs &&
      closed.w > 0 && std::isfinite(closed.w) && are_counts(closed.counts))
    return {};
  return stray(fmt::format("a closed view of rank {} with invalid numbers", closed.rank));
}

namespace {

Expected<void> check_settings(const char* what,
                              const std::map<std::string, std::string>& settings) {
  if (settings.size() > kMostOptions) return stray(std::string(what) + " with too many settings");
  for (const auto& [key, value] : settings)
    for (const std::string* text : {&key, &value})
      if (auto checked = check_text(what, *text); !checked) return checked;
  return {};
}

}  // namespace

Expected<void> check(const CheckSettings& asked, const World&) {
  return check_settings("a question about settings", asked.settings);
}

Expected<void> check(const SettingsChecked& checked, const World& world) {
  if (auto rank = check_rank("an answer about settings", checked.rank, world.ranks); !rank)
    return rank;
  return check_text("an answer about settings", checked.why);
}

Expected<void> check(const ModelShared& shared, const World& world) {
  return check_rank("a common model", shared.rank, world.workers());
}

// Each once, ascending.
static bool are_some_of(const std::vector<Rank>& ranks, const std::vector<Rank>& members) {
  const auto unordered =
      std::adjacent_find(ranks.begin(), ranks.end(), [](Rank a, Rank b) { return a >= b; });
  return unordered == ranks.end() &&
         std::includes(members.begin(), members.end(), ranks.begin(), ranks.end());
}

namespace {

Expected<void> check_servers(const InstallView& view, const World& world) {
  if (view.servers < 0 || view.servers > world.ranks - world.workers())
    return stray("a view with servers that the run has no ranks for");
  const auto serves = [&](Rank rank) {
    return rank >= world.workers() && rank < world.workers() + view.servers;
  };
  const bool ascend = std::adjacent_find(view.new_servers.begin(), view.new_servers.end(),
                                         std::greater_equal<>()) == view.new_servers.end();
  if (!ascend || !std::all_of(view.new_servers.begin(), view.new_servers.end(), serves))
    return stray("a view with new servers that are none");
  return {};
}

// A member that exchanges, and has the state that the others take.
Expected<void> check_donor(const InstallView& view) {
  const std::vector<Rank>& donors = view.heads.empty() ? view.members : view.heads;
  const auto has = [&view](const std::vector<Rank>& ranks) {
    return std::binary_search(ranks.begin(), ranks.end(), view.donor);
  };
  if (!has(donors) || has(view.behind) || has(view.joining))
    return stray("a view whose donor has no state");
  return {};
}

bool is_valid_horizon(const Horizon& h) {
  return h.steps >= 0 && h.first_step >= 0 && h.first_epoch >= 0 && h.first_epoch <= kMostEpochs &&
         h.steps_per_epoch > 0 && std::isfinite(h.steps_per_epoch) && h.planned_epochs >= 0 &&
         h.planned_epochs <= kMostEpochs;
}

}  // namespace

Expected<void> check(const ViewCounts& counts, const World& world) {
  for (const auto& [rank, own] : counts.counts) {
    if (auto checked = check_rank("counts of a view", rank, world.workers()); !checked)
      return checked;
    if (!are_counts(own)) return stray(fmt::format("a view with invalid counts of rank {}", rank));
  }
  return {};
}

Expected<void> check(const InstallView& view, const World& world) {
  if (auto checked = check_members("a view", view.members, world.workers()); !checked)
    return checked;
  for (const auto* ranks : {&view.behind, &view.joining, &view.heads})
    if (!are_some_of(*ranks, view.members)) return stray("a view with ranks that are no members");
  if (auto checked = check_servers(view, world); !checked) return checked;
  if (auto checked = check_donor(view); !checked) return checked;
  if (view.kind > ViewKind::new_wiring) return stray("a view of no kind that exists");
  if (auto checked = check_settings("a view", view.settings); !checked) return checked;
  if (!is_valid_horizon(view.horizon) || view.operations < 0 || view.first_batch < 0 ||
      view.elapsed_ns < 0 || !(view.scale > 0) || !std::isfinite(view.scale))
    return stray("a view with invalid numbers");
  return {};
}

Expected<void> check(const Join& join) {
  constexpr std::size_t kLength = 3;       // of a text, as it is written
  constexpr std::size_t kOthers = 1 << 8;  // for all that is no text
  std::vector<const std::string*> texts = {&join.job,   &join.version,   &join.host,
                                           &join.nonce, &join.challenge, &join.proof};
  for (const auto& [key, value] : join.identity) texts.insert(texts.end(), {&key, &value});
  std::size_t length = kOthers + join.address.size();
  for (const std::string* text : texts) {
    if (auto checked = check_text("a process", *text); !checked) return checked;
    length += kLength + text->size();
  }
  if (join.address.size() > kLongestAddress || join.identity.size() > kMostOptions ||
      length > kMostControlBytes)
    return stray("a process with an invalid address or invalid options");
  if (join.process != 0 && !join.agent) return stray("a process without its own actor");
  return {};
}

Expected<void> check(const AskJob& ask) {
  for (const std::string* text : {&ask.version, &ask.nonce, &ask.challenge, &ask.proof})
    if (auto checked = check_text("a question for a job", *text); !checked) return checked;
  return check_settings("a question for a job", ask.options);
}

void Gate::ignore(const std::string& why, Time now) {
  if (const auto more = limit_.admit(now))
    spdlog::warn("ignored a message that no process of this run sends: {}{}", why, *more);
}

}  // namespace grapevine
