#include "apps/simulate/campaign.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "actors/record/files.hpp"
#include "apps/console/console.hpp"
#include "apps/console/json_text.hpp"
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

struct Verdict {
  std::vector<std::string> violations;
  std::string faults, hash;
  std::uint64_t events = 0;
  double virtual_seconds = 0;
};

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
Expected<Verdict> verdict_of(const ForkedEnd& end) {
  Verdict verdict;
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

Expected<Verdict> run_alone(const SimOptions& options) {
  Expected<Verdict> verdict = Error{Errc::failed, "not run"};
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
std::string shrunk(const SimOptions& options, const Verdict& verdict) {
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

constexpr char kTableHeading[] =
    "seed,failed,events,virtual_seconds,trace_hash,faults,violations\n";

// Of a list or a sentence: in quotes, which it has twice.
std::string csv_cell(const std::string& text) {
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? "\"\"" : c == '\n' ? " " : std::string(1, c);
  return cell + "\"";
}

std::string table_row(std::int64_t seed, const Verdict& verdict) {
  std::string violations;
  for (const std::string& one : verdict.violations)
    violations += (violations.empty() ? "" : "; ") + one;
  return fmt::format("{},{},{},{:.9g},{},{},{}\n", seed, verdict.violations.empty() ? 0 : 1,
                     verdict.events, verdict.virtual_seconds, verdict.hash,
                     csv_cell(verdict.faults), csv_cell(violations));
}

// The folder of a campaign. Errors (bad_input): it has files, or cannot be written to.
Expected<void> make_campaign_folder(const TrainOptions& options) {
  if (options.out.empty()) return {};
  if (auto ready = ensure_writable_directory(options.out); !ready) return ready;
  std::error_code error;
  const bool empty = std::filesystem::is_empty(options.out, error);
  if (error || (!empty && !options.overwrite))
    return bad_input("--out " + options.out +
                     ": has files: choose another folder for the campaign, or replace its "
                     "seeds.csv and campaign.json with --overwrite");
  return {};
}

class Campaign {
 public:
  Campaign(const CLI::App& app, const SimOptions& options, Seeds seeds, Console& console)
      : app_(app), options_(options), seeds_(seeds), console_(console) {}

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
    if (auto written = write_files(); !written) return written;
    if (failures_.empty()) return {};
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
    if (!options_.train.out.empty()) rows_[seed] = table_row(seed, *verdict);
    events_ += verdict->events;
    virtual_seconds_ += verdict->virtual_seconds;
    if (!verdict->violations.empty()) add_failure(seed, *verdict);
    show_progress();
    return true;
  }

  void add_failure(std::int64_t seed, const Verdict& verdict) {
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

  Expected<void> write_files() const {
    const std::filesystem::path out = options_.train.out;
    if (out.empty()) return {};
    std::string table = kTableHeading;
    for (const auto& [seed, row] : rows_) table += row;
    if (auto written = write_file_atomically(out / "seeds.csv", table); !written) return written;
    return write_file_atomically(out / "campaign.json", json_text(figures(), 2) + "\n");
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
  Console& console_;
  std::optional<Error> refused_;
  std::int64_t done_ = 0;
  std::uint64_t events_ = 0;
  double virtual_seconds_ = 0;
  std::vector<ordered_json> failures_;
  std::map<std::int64_t, std::string> rows_;  // of the table, by seed; with --out
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
  if (auto made = make_campaign_folder(options.train); !made) return made;
  return Campaign(app, options, *seeds, console).run();
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
