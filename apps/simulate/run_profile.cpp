#include "apps/simulate/run_profile.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "apps/console/files/run_files.hpp"
#include "apps/console/text/figures.hpp"
#include "apps/trace/run_layout.hpp"
#include "apps/trace/trace_scan.hpp"
#include "apps/trace/training_clock.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kMostSteps = 100'000;  // of a rank, that are kept

// What one pass over the records adds up.
class Survey {
 public:
  // `node_of`: of each rank.
  Survey(RunProfile& profile, std::vector<std::int32_t> node_of)
      : profile_(profile), ranks_(profile.gradients.size()), node_of_(std::move(node_of)) {}

  void take(const TraceRecord& record) {
    if (record.kind == EventKind::sent) {
      sent(record);
    } else if (record.kind == EventKind::received) {
      received(record);
    } else if (begins_anew(record)) {
      forget_open(record);
    } else if (record.rank < static_cast<Rank>(ranks_.size())) {
      of_worker(record, ranks_[static_cast<std::size_t>(record.rank)]);
    }
  }

  void finish() {
    double step = 0, gradient = 0, wait = 0;
    std::int64_t steps = 0;
    for (const OfRank& rank : ranks_) {
      steps += rank.steps;
      step += rank.in_steps;
      gradient += rank.in_gradients;
      wait += rank.in_waits;
    }
    if (steps > 0) {
      profile_.step_seconds = step / static_cast<double>(steps);
      profile_.overhead = std::max(0.0, (step - gradient - wait) / static_cast<double>(steps));
    }
    // Computing goes on beside the exchange there: the rest of a step is not known.
    if (gradient + wait > step) profile_.overhead = 0;
    for (auto& times : profile_.gradients)
      if (times.size() > 1) times.erase(times.begin());
    profile_.links = links_.fit();
    profile_.inside = inside_.fit();
    const std::int32_t per_node = ranks_of_each_node();
    if (profile_.links.messages == 0)
      profile_.links = profile_.inside;
    else if (profile_.inside.messages > 0)
      profile_.ranks_per_node = per_node;
  }

 private:
  struct OfRank {
    std::int64_t asked = -1, waits_since = -1, stepped = -1;
    std::int64_t steps = 0;  // after the first
    double in_steps = 0, in_gradients = 0, in_waits = 0;
  };
  struct Sent {
    std::int64_t time_ns = 0;
    std::uint64_t bytes = 0;
    bool alone = false;
  };
  // Of two ranks, in one direction, in their order: the numbers and bytes of what is on its way.
  using UnderWay = std::deque<std::pair<std::uint64_t, std::uint64_t>>;

  struct Arrived {
    std::uint64_t sequence = 0;
    std::int64_t time_ns = 0;
    Sent sent;
  };
  static constexpr std::int64_t kAtOnce = 20;  // within a 20th of the time of a message
  static constexpr int kSmall = 4;             // halvings: a message that does not delay another

  static std::uint64_t key(Rank from, std::uint64_t sequence) {
    return static_cast<std::uint64_t>(from) << 44 ^ sequence;
  }
  static double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

  bool knows(Rank rank) const { return rank >= 0 && rank < static_cast<Rank>(node_of_.size()); }
  bool is_inside(Rank one, Rank other) const {
    return node_of_[static_cast<std::size_t>(one)] == node_of_[static_cast<std::size_t>(other)];
  }
  // Whose messages wait for each other: those of a node leave it through one NIC.
  Rank nic_of(Rank rank, Rank peer) const {
    return is_inside(rank, peer) ? -1 - rank : node_of_[static_cast<std::size_t>(rank)];
  }

  // The workers of each node, where all have as many and they stand in order; else 1.
  std::int32_t ranks_of_each_node() const {
    const std::size_t workers = ranks_.size();
    std::size_t each = 1;
    while (each < workers && node_of_[each] == node_of_[0]) ++each;
    if (workers % each != 0) return 1;
    for (std::size_t rank = 1; rank < workers; ++rank)
      if ((node_of_[rank] == node_of_[rank - 1]) != (rank % each != 0)) return 1;
    return static_cast<std::int32_t>(each);
  }

  void sent(const TraceRecord& record) {
    if (!knows(record.rank) || !knows(record.peer)) return;
    std::uint64_t& ahead = bytes_ahead_[nic_of(record.rank, record.peer)];
    const bool alone = ahead <= record.bytes >> kSmall;
    in_flight_[key(record.rank, record.sequence)] = {record.time_ns, record.bytes, alone};
    ahead += record.bytes;
    under_way_[{record.rank, record.peer}].emplace_back(record.sequence, record.bytes);
  }

  void received(const TraceRecord& record) {
    const auto sent = in_flight_.find(key(record.peer, record.sequence));
    if (sent == in_flight_.end()) return;
    const Rank from = record.peer, to = record.rank;
    UnderWay& under_way = under_way_[{from, to}];
    // Messages before it were lost.
    for (; !under_way.empty() && under_way.front().first <= record.sequence; under_way.pop_front())
      bytes_ahead_[nic_of(from, to)] -= under_way.front().second;
    // One that has come in since this one was sent was before it in the receiver's NIC.
    std::map<int, std::int64_t>& newest_ns = arrivals_ns_[nic_of(to, from)];
    bool alone = sent->second.alone;
    const int size = std::ilogb(static_cast<double>(sent->second.bytes) + 1);
    for (auto one = newest_ns.upper_bound(size - kSmall); one != newest_ns.end(); ++one)
      if (one->second > sent->second.time_ns) alone = false;
    newest_ns[size] = record.time_ns;
    if (!is_of_before(record, sent->second)) {
      LinkFit& links = is_inside(from, to) ? inside_ : links_;
      links.add(sent->second.bytes, seconds(record.time_ns - sent->second.time_ns), alone);
      if (!is_inside(from, to)) compare_with_last(record, sent->second);
    }
    in_flight_.erase(sent);
  }

  // Two messages that a rank sends at once leave its NIC one after the other.
  void compare_with_last(const TraceRecord& record, const Sent& sent) {
    Arrived& last = arrived_[record.peer];
    const std::int64_t on_its_way = last.time_ns - last.sent.time_ns;
    const bool right_after = last.sequence + 1 == record.sequence &&
                             last.sent.bytes == sent.bytes &&
                             (sent.time_ns - last.sent.time_ns) * kAtOnce <= on_its_way;
    if (right_after) links_.add_gap(sent.bytes, seconds(record.time_ns - last.time_ns));
    last = {record.sequence, record.time_ns, sent};
  }

  // The time between a run and its resumption, or between the loss of a rank and its return, is
  // neither work of the rank nor part of the way of a message.
  void forget_open(const TraceRecord& record) {
    began_ns_[record.rank] = record.time_ns;
    if (record.rank >= static_cast<Rank>(ranks_.size())) return;
    OfRank& rank = ranks_[static_cast<std::size_t>(record.rank)];
    rank.asked = rank.waits_since = rank.stepped = -1;
  }
  bool is_of_before(const TraceRecord& record, const Sent& sent) const {
    const auto began = began_ns_.find(record.rank);
    return began != began_ns_.end() && sent.time_ns < began->second;
  }

  void of_worker(const TraceRecord& record, OfRank& rank) {
    const bool counts = rank.stepped >= 0;  // the first step warms up
    switch (record.kind) {
      case EventKind::asked:
        rank.asked = record.time_ns;
        return;
      case EventKind::produced:
        if (rank.asked >= 0) {
          const double time = seconds(record.time_ns - std::exchange(rank.asked, -1));
          auto& times = profile_.gradients[static_cast<std::size_t>(record.rank)];
          if (times.size() < kMostSteps) times.push_back(static_cast<float>(time));
          if (counts) rank.in_gradients += time;
        }
        return;
      case EventKind::wait_begin:
        rank.waits_since = record.time_ns;
        return;
      case EventKind::wait_end:
        if (rank.waits_since >= 0 && counts)
          rank.in_waits += seconds(record.time_ns - rank.waits_since);
        rank.waits_since = -1;
        return;
      case EventKind::step_done:
        if (counts) {
          ++rank.steps;
          rank.in_steps += seconds(record.time_ns - rank.stepped);
        }
        rank.stepped = record.time_ns;
        return;
      default:
        return;
    }
  }

  RunProfile& profile_;
  std::vector<OfRank> ranks_;
  std::unordered_map<Rank, std::int64_t> began_ns_;  // anew, the last time
  std::unordered_map<std::uint64_t, Sent> in_flight_;
  std::unordered_map<Rank, Arrived> arrived_;  // the newest message of each sender
  std::map<std::pair<Rank, Rank>, UnderWay> under_way_;
  // By nic_of(): the bytes of under_way_, and the newest arrival by the logarithm of its bytes.
  std::unordered_map<Rank, std::uint64_t> bytes_ahead_;
  std::unordered_map<Rank, std::map<int, std::int64_t>> arrivals_ns_;
  const std::vector<std::int32_t> node_of_;
  LinkFit links_, inside_;
};

bool differ(const std::vector<std::int32_t>& numbers) {
  return std::any_of(numbers.begin(), numbers.end(),
                     [&numbers](std::int32_t number) { return number != numbers.front(); });
}

// Ranks on one machine; where there is one machine, in one process; where there is one, each rank
// by itself. `network`: of a simulated run, in which all that is modelled.
std::vector<std::int32_t> nodes_of(const RunLayout& layout, const std::string& network) {
  std::vector<std::int32_t> each(static_cast<std::size_t>(layout.ranks()));
  std::iota(each.begin(), each.end(), 0);
  const auto model = network.empty() ? Expected<NetworkModel>(Error{}) : parse_network(network);
  if (model) {
    for (std::int32_t& rank : each) rank = model->node_of(rank);
    return each;
  }
  for (const auto* places : {&layout.host_of, &layout.process_of}) {
    const bool known = places->size() == each.size() &&
                       std::all_of(places->begin(), places->end(), [](auto n) { return n >= 0; });
    if (known && differ(*places)) return *places;
  }
  return each;
}

std::int64_t integer_of(const nlohmann::ordered_json& summary, const char* key,
                        std::int64_t otherwise) {
  const auto found = summary.find(key);
  return found != summary.end() && found->is_number() ? found->get<std::int64_t>() : otherwise;
}

// The batch size of the options; a summary of an earlier program lacks it: then from the samples of
// all ranks.
std::int64_t batch_size_of(const nlohmann::ordered_json& summary, const RunProfile& profile) {
  const auto options = summary.find("options");
  if (options != summary.end() && options->is_object()) {
    const auto given = options->find("batch-size");
    const std::string text = given == options->end() ? ""
                             : given->is_string()    ? given->get<std::string>()
                                                     : given->dump();
    const std::int64_t number = std::strtoll(text.c_str(), nullptr, 10);
    if (number >= 1) return number;
  }
  if (profile.steps <= 0 || profile.workers <= 0) return profile.batch_size;
  const std::int64_t samples = integer_of(summary, "samples", 0);
  return std::max<std::int64_t>(1, samples / profile.steps / profile.workers);
}

}  // namespace

double RunProfile::mean_gradient() const {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& times : gradients) {
    for (const float time : times) sum += static_cast<double>(time);
    count += times.size();
  }
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

DelayModel::Term RunProfile::compute_time() const {
  const auto times = std::make_shared<std::vector<std::vector<float>>>();
  for (const auto& of_rank : gradients)
    if (!of_rank.empty()) times->push_back(of_rank);
  return [times, overhead = overhead](Rank rank, Step step) {
    const auto ranks = static_cast<Rank>(times->size());
    const auto& own = (*times)[static_cast<std::size_t>(rank % ranks)];
    // Primes apart: two ranks with the same times have them at different steps.
    const auto at =
        static_cast<std::uint64_t>(step) + static_cast<std::uint64_t>(rank / ranks) * 104729u;
    return from_seconds(static_cast<double>(own[at % own.size()]) + overhead);
  };
}

NetworkModel RunProfile::network() const {
  NetworkModel model;
  model.link = links.link;
  model.jitter = links.jitter;
  model.ranks_per_node = ranks_per_node;
  if (ranks_per_node > 1) model.inside = inside.link;
  return model;
}

std::string RunProfile::network_note() const {
  const std::string note = links.note();
  if (ranks_per_node == 1) return note;
  std::string all = (note.empty() ? "" : note + "; ") + "nodes of " +
                    std::to_string(ranks_per_node) + " ranks, as in the run, with " +
                    format_count(inside.messages) + " messages inside them";
  if (!inside.note().empty()) all += ", whose " + inside.note();
  return all;
}

Expected<RunProfile> read_profile(const std::string& run, Console& console) {
  const auto summary = run_summary(run);
  if (!summary)
    return bad_input(run +
                     "/summary.json: expected the summary of a run: give the folder of one that "
                     "ended");
  auto trace = MergedTrace::open(run);
  if (!trace) return trace.error();
  if (trace->sampled() > 1)
    return bad_input(run + ": its trace has only every " + std::to_string(trace->sampled()) +
                     "th step (--trace-sample): give a run without --trace-sample");
  for (const std::string& missing : trace->missing()) console.err << "note: " << missing << '\n';
  RunProfile profile;
  profile.path = run;
  profile.algorithm = summary->value("algorithm", std::string("?"));
  profile.workers = trace->workers();
  profile.parameters = integer_of(*summary, "parameters", 0);
  profile.steps = integer_of(*summary, "steps", 0);
  profile.batch_size = batch_size_of(*summary, profile);
  profile.gradients.resize(static_cast<std::size_t>(profile.workers));
  Survey survey(profile, nodes_of(layout_of(*trace), summary->value("network", std::string())));
  read_records(*trace, console, [&survey](const TraceRecord& record) { survey.take(record); });
  survey.finish();
  const bool any = std::any_of(profile.gradients.begin(), profile.gradients.end(),
                               [](const auto& times) { return !times.empty(); });
  if (!any || profile.parameters < 1)
    return bad_input(run +
                     ": its trace has no gradients: give a run with --trace on that has "
                     "taken steps");
  return profile;
}

}  // namespace grapevine
