#include "apps/train/job_file.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <toml++/toml.h>

#include "algorithms/wiring/role_type.hpp"
#include "apps/train/options/option_traits.hpp"
#include "apps/train/train_place.hpp"
#include "gpu/device.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

// The beginning of each job file of a run.
constexpr char kMark[] = "# Grapevine ";

std::string toml_string(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

// Whether `line` reads back as that text: bytes that are not UTF-8 do not.
bool states(const std::string& line, const std::string& name, const std::string& text) {
  try {
    const toml::table read = toml::parse(line);
    return read[name].value<std::string>() == text;
  } catch (const toml::parse_error&) {
    return false;
  }
}

// Text stays text: a name such as 1.50 is no number. A path may hold bytes that no TOML file can.
std::string option_line(const CLI::Option& option, const std::string& name,
                        const std::string& value) {
  if (option.get_type_name().rfind("TEXT", 0) != 0) return toml_line(name, value);
  const std::string line = name + " = " + toml_string(value);
  return states(line, name, value) ? line
                                   : "# " + name + ": is not UTF-8, give it on the command line";
}

// With all digits as it was given, or the default.
std::string stated_value(const CLI::Option& option) {
  if (option.get_items_expected() == 0) return option.as<bool>() ? "true" : "false";
  return option.count() > 0 ? option.results().back() : option.get_default_str();
}

// check_momentum() refuses a momentum that no step uses.
bool momentum_counts(const TrainOptions& options, const Wiring& wiring) {
  if (options.optimizer == "adam" || options.optimizer == "adamw") return false;
  const auto plan = resolve(wiring);
  return !plan || plan->role->uses_momentum(*plan);
}

// The value of an option in the resolved job; empty: it has none.
std::string resolved_value(const CLI::Option& option, const std::string& name,
                           const TrainOptions& options, const Wiring& wiring) {
  const auto changed = options.changed.find(name);
  if (changed != options.changed.end()) return changed->second;
  // One of them counts: see settle_length().
  if (name == "steps") return options.steps == 0 ? "" : std::to_string(options.steps);
  if (name == "epochs" && options.steps > 0) return "";
  if (name == "momentum" && options.momentum != 0 && !momentum_counts(options, wiring)) return "";
  if (name == "momentum") return number_text(options.momentum);  // a resumed run may keep another
  if (option_has(name, OptionTraits::chosen)) return value_text(options, traits_of(name));
  return stated_value(option);
}

std::string head_comment(const std::string& verb, const JobOrigin& origin) {
  const std::string count = std::to_string(origin.processes);
  const std::string launch = origin.processes > 1 ? "launch -n " + count + " -- " : "";
  std::string text = kMark + std::string(GRAPEVINE_VERSION) +
                     ": the resolved job of a run. Repeat it with\n#   grapevine " + launch + verb +
                     " job.toml --out DIR\n";
  if (origin.processes > 1)
    text += "# or give train --cluster HOST:PORT --processes " + count + ".";
  if (origin.processes > 1) text += " `workers` is the number in each process.\n";
  if (origin.resumed) text += "# The run was resumed: a repetition begins at the first step.\n";
  return text +
         "# Paths are relative to the run's working directory. The command line and GRAPEVINE_*\n"
         "# variables have precedence over this file.\n";
}

std::string wiring_table(const Wiring& wiring) {
  const auto resolved = resolve_keys(wiring);
  if (!resolved) return "[wiring]\n";
  std::string text;
  for (const WiringTable& table : wiring_tables(resolved->keys)) {
    text += (text.empty() ? "" : "\n") + table.header + "\n";
    for (const ResolvedKey& key : table.keys)
      // Without a value: no clipping, or a number that depends on the ranks.
      text += key.value.empty() ? "# " + key.key + ": not given\n"
                                : toml_line(key.key, key.value) + "\n";
  }
  return text;
}

}  // namespace

TrainOptions resolved_options(const TrainJob& job) {
  TrainOptions options = job.options;
  options.workers = static_cast<std::int64_t>(job.local_ranks.size());
  if (options.threads == 0) {
    // Not the number of CPUs near a GPU of this machine: another machine has others.
    const std::int64_t threads = job.threads_of_cores.value_or(job.run.threads) *
                                 options.devices_per_worker * options.processes_per_worker;
    if (threads <= kMaxThreads) options.threads = static_cast<int>(threads);
  }
  // Another process of the job may have GPUs; where there are some, their number is the machine's.
  const bool on_cpu = !job.launched && visible_gpus().visible == 0;
  if (options.device == "auto" && on_cpu) options.device = "cpu";
  return options;
}

std::vector<std::pair<std::string, nlohmann::ordered_json>> stated_options(
    const CLI::App& app, const TrainOptions& options, const Wiring& wiring) {
  std::vector<std::pair<std::string, nlohmann::ordered_json>> stated;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_lnames().empty() ? "job" : option->get_lnames().front();
    if (option_has(name, OptionTraits::not_in_job_file)) continue;
    const std::string value = resolved_value(*option, name, options, wiring);
    if (value.empty()) continue;
    const bool text = option->get_type_name().rfind("TEXT", 0) == 0;
    auto parsed = nlohmann::ordered_json::parse(value, nullptr, /*allow_exceptions=*/false);
    const bool plain = !text && !parsed.is_discarded() && parsed.is_primitive();
    stated.emplace_back(name, plain ? std::move(parsed) : nlohmann::ordered_json(value));
  }
  return stated;
}

std::string job_file_text(const CLI::App& app, const TrainOptions& options, const Wiring& wiring,
                          const JobOrigin& origin) {
  // The options are declared for a verb, or for nothing but a look at its arguments.
  const std::string name = app.get_name().empty() ? "train" : app.get_name();
  const std::string verb = name.substr(name.rfind(' ') + 1);  // without that of the program
  std::string text = head_comment(verb, origin);
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_lnames().empty() ? "job" : option->get_lnames().front();
    if (option_has(name, OptionTraits::not_in_job_file)) continue;
    const std::string value = resolved_value(*option, name, options, wiring);
    if (!value.empty()) text += option_line(*option, name, value) + "\n";
  }
  return text + "\n" + wiring_table(wiring);
}

std::string job_file_text(const CLI::App& app, const TrainJob& job) {
  JobOrigin origin;
  if (job.launched) origin.processes = job.launched->processes;
  origin.processes *= job.processes.replicas;
  origin.resumed = job.run.resume.has_value();
  return job_file_text(app, resolved_options(job), job.wiring, origin);
}

bool is_job_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;  // a pipe would block
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return is_job_text(line);
}

bool is_job_text(const std::string& text) { return text.rfind(kMark, 0) == 0; }

Expected<void> check_job_file(const std::string& out) {
  const std::filesystem::path path = std::filesystem::path(out) / kJobFileName;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) || is_job_file(path.string())) return {};
  return bad_input(
      "--out " + out + ": " + path.string() +
      " was not written by a run, and would be replaced: move it or choose another folder");
}

}  // namespace grapevine
