#include "apps/simulate/campaign.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <ostream>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/console/json_text.hpp"
#include "apps/console/text/figures.hpp"
#include "apps/simulate/campaign_files.hpp"
#include "apps/simulate/checked_sim.hpp"
#include "apps/simulate/forked_call.hpp"
#include "apps/simulate/shrink.hpp"
#include "messages/text/shell_quoted.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

constexpr Duration kTimeout = std::chrono::minutes(30);  // real time of one seed
constexpr std::int64_t kMostSeeds = 10'000'000;
constexpr char kHashCheck[] = "hash";  // of --twice

struct Seeds {
  std::int64_t first = 0, last = 0;
  std::int64_t count() const { return last - first + 1; }
};

Expected<Seeds> parse_seeds(const std::string& text) {
  const Error wrong = bad_input("--seeds '" + text + "': expected A..B, at most " +
                                std::to_string(kMostSeeds) + " whole numbers from 0");
  const auto dots = text.find("..");
  const auto number = [](const std::string& part) -> std::int64_t {
    const bool whole = !part.empty() && part.size() < 16 &&
                       part.find_first_not_of("0123456789") == std::string::npos;
    return whole ? std::stoll(part) : -1;
  };
  if (dots == std::string::npos) return wrong;
  const Seeds seeds{number(text.substr(0, dots)), number(text.substr(dots + 2))};
  if (seeds.first < 0 || seeds.last < seeds.first || seeds.count() > kMostSeeds) return wrong;
  return seeds;
}

// In the words of a shell.
std::string quoted(const std::string& word) {
  const bool plain =
      word.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=.,/:+@") ==
      std::string::npos;
  return plain && !word.empty() ? word : shell_quoted(word);
}

// "ledger" of "ledger: …".
std::string check_of(const std::string& violation) {
  return violation.substr(0, violation.find(':'));
}

// The command that repeats one run, with its checks: what they watch changes the events of a run.
std::string replay(const CLI::App& app, const SimOptions& options, std::int64_t seed,
                   const std::string& faults, const std::vector<std::string>& violations) {
  std::string text = "grapevine simulate";
  const std::set<std::string> own = {"seeds", "seed",  "fail", "minimize",
                                     "jobs",  "twice", "json", "overwrite"};
  bool is_value = false;  // of --set
  for (const std::string& word : travelling_arguments(app, options.train)) {
    const auto equals = word.find('=');
    const bool option = !is_value && word.rfind("--", 0) == 0;
    is_value = word == "--set";
    if (option && own.count(word.substr(2, equals == std::string::npos ? equals : equals - 2)) > 0)
      continue;
    text += " " + quoted(word);
  }
  const std::string number = std::to_string(seed);
  text += " --seeds " + number + ".." + number;
  if (!faults.empty()) text += " --fail " + quoted(faults);
  const bool differ = std::any_of(violations.begin(), violations.end(), [](const auto& violation) {
    return check_of(violation) == kHashCheck;
  });
  return differ ? text + " --twice" : text;
}

// ---- one run, in a process of its own ----

std::string run_and_report(const SimOptions& options) {
  ordered_json report;
  const auto outcome = run_checked(options);
  if (!outcome) {
    report["bad_input"] = outcome.error().message;
    return json_text(report, -1);
  }
  char hash[24];
  std::snprintf(hash, sizeof hash, "%016" PRIx64, outcome->trace_hash);
  report["hash"] = hash;
  report["faults"] = outcome->faults;
  report["events"] = outcome->events;
  report["virtual_seconds"] = outcome->virtual_seconds;
  report["violations"] = outcome->violations;
  if (options.twice) {
    const auto again = run_checked(options);
    if (!again || again->trace_hash != outcome->trace_hash)
      report["violations"].push_back(std::string(kHashCheck) + ": two runs of this seed differ");
  }
  return json_text(report, -1);
}

// Errors (bad_input): the options.
Expected<SeedVerdict> verdict_of(const ForkedEnd& end) {
  SeedVerdict verdict;
  if (!end.text) {
    verdict.violations.push_back("process: " + end.text.error().message);
    return verdict;
  }
  const ordered_json report = ordered_json::parse(*end.text, nullptr, false);
  if (report.is_discarded() || (!report.contains("violations") && !report.contains("bad_input"))) {
    verdict.violations.emplace_back("process: it ended without a report");
    return verdict;
  }
  if (report.contains("bad_input")) return bad_input(report["bad_input"].get<std::string>());
  verdict.violations = report["violations"].get<std::vector<std::string>>();
  verdict.faults = report["faults"].get<std::string>();
  verdict.hash = report["hash"].get<std::string>();
  verdict.events = report["events"].get<std::uint64_t>();
  verdict.virtual_seconds = report["virtual_seconds"].get<double>();
  return verdict;
}

Expected<SeedVerdict> run_alone(const SimOptions& options) {
  Expected<SeedVerdict> verdict = Error{Errc::failed, "not run"};
  const auto done = run_forked(
      1, 1, kTimeout, [&](std::int64_t) { return run_and_report(options); },
      [&](std::int64_t, const ForkedEnd& end) {
        verdict = verdict_of(end);
        return true;
      });
  if (!done) return done.error();
  return verdict;
}

// The faults that the first of the run's violations needs.
std::string shrunk(const SimOptions& options, const SeedVerdict& verdict) {
  auto faults = parse_faults(verdict.faults, FaultBounds::of_known_plan());
  // A process that crashed has not named its faults.
  if (!faults || faults->empty()) return verdict.faults;
  const std::string check = check_of(verdict.violations.front());
  const auto fails = [&](const std::vector<Fault>& some) {
    SimOptions other = options;
    other.fail = faults_text(some);
    const auto found = run_alone(other);
    return found && std::any_of(found->violations.begin(), found->violations.end(),
                                [&](const auto& one) { return check_of(one) == check; });
  };
  return faults_text(shrink(*std::move(faults), fails));
}

// ---- the campaign ----

class Campaign {
 public:
  // `files`: null, where the campaign writes none.
  Campaign(const CLI::App& app, const SimOptions& options, Seeds seeds, CampaignFiles* files,
           Console& console)
      : app_(app), options_(options), seeds_(seeds), files_(files), console_(console) {}

  Expected<void> run() {
    const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
    const std::int64_t processes = options_.jobs > 0 ? options_.jobs : cores;
    const auto done = run_forked(
        seeds_.count(), processes, kTimeout,
        [this](std::int64_t i) { return run_and_report(of_seed(seeds_.first + i)); },
        [this](std::int64_t i, const ForkedEnd& end) { return add(seeds_.first + i, end); });
    if (!done) return done;
    if (refused_) return *refused_;
    report();
    const Expected<void> written = write_files();
    if (failures_.empty()) return written;
    // The seeds are what the campaign is for: their failure is its error.
    if (!written) console_.err << written.error().message << std::endl;
    return Error{Errc::failed, std::to_string(failures_.size()) + " of " +
                                   std::to_string(seeds_.count()) +
                                   " seeds failed: the lines above repeat them"};
  }

 private:
  SimOptions of_seed(std::int64_t seed) const {
    SimOptions options = options_;
    options.train.seed = seed;
    return options;
  }

  bool add(std::int64_t seed, const ForkedEnd& end) {
    const auto verdict = verdict_of(end);
    if (!verdict) {  // the same for all of them
      if (!refused_) refused_ = verdict.error();
      return false;
    }
    ++done_;
    if (files_ != nullptr) files_->add(seed, *verdict);
    events_ += verdict->events;
    virtual_seconds_ += verdict->virtual_seconds;
    if (!verdict->violations.empty()) add_failure(seed, *verdict);
    show_progress();
    return true;
  }

  void add_failure(std::int64_t seed, const SeedVerdict& verdict) {
    // A process that crashed has not reported the faults that it drew.
    std::string faults = verdict.faults.empty() ? options_.fail : verdict.faults;
    if (options_.minimize && !verdict.faults.empty()) faults = shrunk(of_seed(seed), verdict);
    const std::string command = replay(app_, options_, seed, faults, verdict.violations);
    failures_.push_back({{"seed", seed}, {"violations", verdict.violations}, {"replay", command}});
    console_.err << "seed " << seed << " failed\n";
    for (const std::string& violation : verdict.violations)
      console_.err << "  " << violation << "\n";
    console_.err << "  " << command << std::endl;
  }

  void show_progress() {
    const std::int64_t step = std::max<std::int64_t>(1, seeds_.count() / 10);
    if (done_ % step != 0 || done_ == seeds_.count()) return;
    console_.err << done_ << " of " << seeds_.count() << " seeds, " << failures_.size() << " failed"
                 << std::endl;
  }

  ordered_json figures() const {
    return {{"algorithm", options_.train.algorithm},
            {"seeds", done_},
            {"failed", failures_.size()},
            {"events", events_},
            {"virtual_seconds", virtual_seconds_},
            {"failures", failures_}};
  }

  Expected<void> write_files() {
    if (files_ == nullptr) return {};
    return files_->commit(json_text(figures(), 2) + "\n");
  }

  void report() {
    if (options_.train.json) {
      console_.out << json_text(figures(), -1) << std::endl;
      return;
    }
    console_.out << options_.train.algorithm << ": " << done_ << " seeds, " << failures_.size()
                 << " failed, " << format_count(static_cast<std::int64_t>(events_)) << " events, "
                 << format_duration(from_seconds(virtual_seconds_)) << " of virtual time"
                 << std::endl;
  }

  const CLI::App& app_;
  const SimOptions& options_;
  const Seeds seeds_;
  CampaignFiles* const files_;
  Console& console_;
  std::optional<Error> refused_;
  std::int64_t done_ = 0;
  std::uint64_t events_ = 0;
  double virtual_seconds_ = 0;
  std::vector<ordered_json> failures_;
};

}  // namespace

namespace {

void print_sound_run(const SimOptions& options, Console& console) {
  if (options.train.json)
    console.out << json_text({{"violations", ordered_json::array()}, {"replay", nullptr}}, -1);
  else
    console.out << "all checks pass: no fault to remove";
  console.out << std::endl;
}

}  // namespace

Expected<void> run_campaign(const CLI::App& app, const SimOptions& options, Console& console) {
  if (auto checked = check_sim_options(options); !checked) return checked;
  const auto seeds = parse_seeds(options.seeds);
  if (!seeds) return seeds.error();
  const TrainOptions& train = options.train;
  if (train.out.empty()) return Campaign(app, options, *seeds, nullptr, console).run();
  auto files = CampaignFiles::create(train.out, train.overwrite, seeds->first);
  if (!files) return files.error();
  return Campaign(app, options, *seeds, &*files, console).run();
}

Expected<void> run_minimize(const CLI::App& app, const SimOptions& options, Console& console) {
  if (auto checked = check_sim_options(options); !checked) return checked;
  const auto verdict = run_alone(options);
  if (!verdict) return verdict.error();
  if (verdict->violations.empty()) {
    print_sound_run(options, console);
    return {};
  }
  for (const std::string& violation : verdict->violations) console.err << violation << "\n";
  const std::string faults = shrunk(options, *verdict);
  const std::string command = replay(app, options, options.train.seed, faults, verdict->violations);
  if (options.train.json)
    console.out << json_text({{"violations", verdict->violations}, {"replay", command}}, -1);
  else
    console.out << command;
  console.out << std::endl;
  return Error{Errc::failed, "the run fails: " + verdict->violations.front()};
}

}  // namespace grapevine
