#include "apps/train/resume/saved_job.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/record/checkpoints/find_checkpoint.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/train/job_file.hpp"
#include "apps/train/options/option_traits.hpp"
#include "apps/train/train_folder.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr char kJobFile[] = "a TOML job file";
constexpr char kStartStep[] = "first-step";
constexpr char kStartEpoch[] = "first-epoch";
constexpr char kStartRanks[] = "first-workers";

bool is_rate(const std::string& key) {
  return key.rfind("lr", 0) == 0 || key.rfind("warmup", 0) == 0;
}

// The velocity is part of the state where there is a momentum.
bool may_change(const std::string& key, const std::string& before, const std::string& now) {
  if (key == "momentum") return before != "0" && now != "0";
  return option_has(key, OptionTraits::may_change_on_resume);
}

std::string value_in(const JobIdentity& identity, const std::string& key) {
  const auto found = identity.find(key);
  return found == identity.end() ? "" : found->second;
}

// A name without a value has its default, which checkpoints leave out.
std::string value_or_default(const std::string& value) {
  return value.empty() ? "its default" : value;
}

// In the folder of a checkpoint, where it is whole.
std::optional<SavedJob> job_at(const fs::path& file) {
  auto text = read_marked_file(file.parent_path().string(), file.filename().string());
  if (!text || !is_job_text(*text)) return std::nullopt;
  return SavedJob{file.string(), *std::move(text)};
}

}  // namespace

Expected<void> settle_resume(TrainOptions& options) {
  if (options.resume != "auto") return {};
  if (options.out.empty())
    return bad_input("--resume auto: give --out DIR, in which the run begins or continues");
  options.resume = has_checkpoint(options.out) ? options.out : "";
  return {};
}

Expected<std::optional<SavedJob>> find_saved_job(const std::string& resume) {
  std::error_code none;
  const fs::path path = fs::canonical(resume, none);
  if (none) return std::optional<SavedJob>();
  // Of the state itself first: settings may have changed since.
  fs::path of_state;  // its file
  auto saved = read_newest(resume, [&of_state](const std::string& folder) {
    of_state = folder.empty() ? fs::path() : fs::path(folder) / kJobFileName;
    return of_state.empty() ? std::nullopt : job_at(of_state);
  });
  if (saved) {
    auto checked = check_toml_text(std::move(saved->text), saved->path, kJobFile);
    if (!checked) return checked.error();
    saved->text = *std::move(checked);
    return saved;
  }
  // Of earlier versions a checkpoint has none.
  const bool damaged = !of_state.empty() && fs::exists(of_state, none);
  const fs::path candidates[] = {path, path.parent_path(), path.parent_path().parent_path()};
  for (const fs::path& folder : candidates) {
    const bool holds_it = folder == path || fs::is_directory(folder / "checkpoint", none);
    const fs::path file = folder / kJobFileName;
    if (!holds_it || fs::equivalent(file, of_state, none) || !is_job_file(file.string())) continue;
    if (damaged)
      spdlog::warn("{} is damaged: the job is that of {}", of_state.string(), file.string());
    const auto text = read_toml_file(file.string(), kJobFile);
    if (!text) return text.error();
    return std::optional(SavedJob{file.string(), *text});
  }
  if (!damaged) return std::optional<SavedJob>();
  return bad_input(of_state.string() +
                   ": damaged: it is not the one that job.json beside it says, and the run has no "
                   "job.toml: use another checkpoint");
}

AllowedChanges allow_changes(JobIdentity saved, const JobIdentity& present) {
  AllowedChanges changes;
  std::set<std::string> keys;
  for (const JobIdentity* identity : {&std::as_const(saved), &present})
    for (const auto& [key, value] : *identity) keys.insert(key);
  for (const std::string& key : keys) {
    const std::string before = value_in(saved, key), now = value_in(present, key);
    if (before == now || !may_change(key, before, now)) continue;
    changes.lines.push_back(without_control_characters(key + " " + value_or_default(now) +
                                                       " instead of " + value_or_default(before)));
    changes.batch_size = changes.batch_size || key == "batch-size" || key == "accumulate";
    changes.rate = changes.rate || is_rate(key);
    saved.erase(key);
    if (present.count(key) > 0) saved[key] = now;
  }
  changes.saved = std::move(saved);
  return changes;
}

HorizonStart horizon_start_in(const JobIdentity& identity) {
  HorizonStart start;
  start.step = std::strtoll(value_in(identity, kStartStep).c_str(), nullptr, 10);
  start.epoch = std::strtod(value_in(identity, kStartEpoch).c_str(), nullptr);
  start.ranks = std::strtoll(value_in(identity, kStartRanks).c_str(), nullptr, 10);
  return start;
}

std::string clock_start_line(const HorizonStart& start) {
  if (start.step == 0 && start.ranks == 0) return "";
  const std::string ranks = start.ranks > 0 ? "/" + std::to_string(start.ranks) : "";
  return "clock-start = \"" + std::to_string(start.step) + "@" + number_text(start.epoch) + ranks +
         "\"\n";
}

Expected<HorizonStart> parse_clock_start(const std::string& text) {
  HorizonStart start;
  long long step = 0, ranks = 0;
  int length = 0;
  int read = std::sscanf(text.c_str(), "%lld@%lf%n", &step, &start.epoch, &length);
  if (read == 2 && static_cast<std::size_t>(length) < text.size())
    read += std::sscanf(text.c_str(), "%*d@%*f/%lld%n", &ranks, &length);
  start.step = step;
  start.ranks = ranks;
  const bool whole = read >= 2 && static_cast<std::size_t>(length) == text.size();
  const bool changed = read == 2 ? step > 0 : step >= 0 && ranks > 0;
  if (whole && changed && std::isfinite(start.epoch) && start.epoch >= 0) return start;
  return bad_input("--clock-start " + text +
                   ": expected STEP@EPOCH or STEP@EPOCH/RANKS, of the job that is joined");
}

void put_horizon_start(const HorizonStart& start, JobIdentity& identity) {
  identity.erase(kStartStep);
  identity.erase(kStartEpoch);
  identity.erase(kStartRanks);
  if (start.ranks > 0) identity[kStartRanks] = std::to_string(start.ranks);
  if (start.step == 0) return;
  identity[kStartStep] = std::to_string(start.step);
  identity[kStartEpoch] = number_text(start.epoch);
}

}  // namespace grapevine
