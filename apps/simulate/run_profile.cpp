#include "apps/simulate/run_profile.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "apps/trace/trace_scan.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kMostSteps = 100'000;  // of a rank, that are kept

// What one pass over the records adds up.
class Survey {
 public:
  explicit Survey(RunProfile& profile) : profile_(profile), ranks_(profile.gradients.size()) {}

  void take(const TraceRecord& record) {
    if (record.kind == EventKind::sent) {
      in_flight_[key(record.rank, record.sequence)] = {record.time_ns, record.bytes};
    } else if (record.kind == EventKind::received) {
      received(record);
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
  };

  struct Arrived {
    std::uint64_t sequence = 0;
    std::int64_t time_ns = 0;
    Sent sent;
  };
  static constexpr std::int64_t kAtOnce = 20;  // within a 20th of the time of a message

  static std::uint64_t key(Rank from, std::uint64_t sequence) {
    return static_cast<std::uint64_t>(from) << 44 ^ sequence;
  }
  static double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

  void received(const TraceRecord& record) {
    const auto sent = in_flight_.find(key(record.peer, record.sequence));
    if (sent == in_flight_.end()) return;
    links_.add(sent->second.bytes, seconds(record.time_ns - sent->second.time_ns));
    compare_with_last(record, sent->second);
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
  std::unordered_map<std::uint64_t, Sent> in_flight_;
  std::unordered_map<Rank, Arrived> arrived_;  // the newest message of each sender
  LinkFit links_;
};

Expected<nlohmann::json> read_summary(const std::string& run) {
  const std::string path = run + "/summary.json";
  std::ifstream file(path);
  const nlohmann::json summary = nlohmann::json::parse(file, nullptr, false);
  if (summary.is_discarded() || !summary.is_object())
    return bad_input(path + ": expected the summary of a run: give the folder of one that ended");
  return summary;
}

std::int64_t integer_of(const nlohmann::json& summary, const char* key, std::int64_t otherwise) {
  const auto found = summary.find(key);
  return found != summary.end() && found->is_number() ? found->get<std::int64_t>() : otherwise;
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
  return model;
}

Expected<RunProfile> read_profile(const std::string& run, Console& console) {
  const auto summary = read_summary(run);
  if (!summary) return summary.error();
  auto trace = MergedTrace::open(run);
  if (!trace) return trace.error();
  RunProfile profile;
  profile.path = run;
  profile.algorithm = summary->value("algorithm", std::string("?"));
  profile.workers = trace->workers();
  profile.parameters = integer_of(*summary, "parameters", 0);
  profile.steps = integer_of(*summary, "steps", 0);
  const std::int64_t samples = integer_of(*summary, "samples", 0);
  if (profile.steps > 0 && profile.workers > 0)
    profile.batch_size = std::max<std::int64_t>(1, samples / profile.steps / profile.workers);
  profile.gradients.resize(static_cast<std::size_t>(profile.workers));
  Survey survey(profile);
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
