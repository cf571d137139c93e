#include "apps/train/options/two_algorithms.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <iterator>
#include <optional>
#include <utility>

namespace grapevine {
namespace {

// Nothing where the text has none, or is no TOML: then read_options() says so.
std::optional<std::string> algorithm_in(const std::string& text) {
  try {
    return toml::parse(text)["algorithm"].value<std::string>();
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

bool is_of_another_role(const Wiring& wiring, const std::string& algorithm) {
  const auto preset = find_preset(algorithm);
  if (!preset) return false;  // effective_wiring() says so
  const auto exchange = preset->wiring.keys().find("exchange");
  return exchange != preset->wiring.keys().end() &&
         exchange->second != wiring.keys().at("exchange");
}

// Also the changes of its wiring. Returns what they were, for people.
std::string drop_algorithm(CLI::App& app, TrainOptions& options) {
  const std::string given = "--algorithm " + options.algorithm;
  const bool changed = !options.set.empty();
  app.get_option("--algorithm")->clear();
  app.get_option("--set")->clear();
  options.algorithm = TrainOptions().algorithm;
  options.set.clear();
  return given + (changed ? " with its --set" : "");
}

// Process 0 of the job that is joined has decided it; the environment may be that of other runs.
Expected<void> leave_to_the_job(CLI::App& app, TrainOptions& options,
                                const std::string& algorithm) {
  if (!from_environment(*app.get_option("--algorithm")))
    return bad_input(
        fmt::format("--join {}: the job there trains with algorithm '{}': leave "
                    "--algorithm {} out",
                    options.join, algorithm, options.algorithm));
  const std::string dropped = drop_algorithm(app, options);
  options.notice = fmt::format("the job at {} has algorithm '{}': {} does not count", options.join,
                               algorithm, dropped);
  return {};
}

}  // namespace

Expected<void> settle_algorithm(CLI::App& app, TrainOptions& options, const std::string& text,
                                const std::string& path) {
  CLI::Option* option = app.get_option("--algorithm");
  const bool whole = options.wiring.keys().count("exchange") > 0;
  if (option->count() == 0 || !whole) return {};
  const std::string given = options.algorithm;
  const auto of_file = algorithm_in(text);
  const bool same = of_file ? *of_file == given : !is_of_another_role(options.wiring, given);
  if (same || given == kCustomWiring) return {};
  if (options.of_state == StateJob::refuses)
    return bad_input(fmt::format(
        "--resume {}: its state is that of algorithm '{}', not of --algorithm {}: leave that out, "
        "or begin a new run with its model: --init {} --algorithm {} --out DIR",
        options.resume, of_file.value_or(kCustomWiring), given, options.resume, given));
  if (!options.join.empty()) return leave_to_the_job(app, options, of_file.value_or(kCustomWiring));
  if (options.of_state == StateJob::counts) {
    const std::string dropped = drop_algorithm(app, options);
    options.notice = fmt::format("{} continues with its algorithm '{}': {} does not count",
                                 options.resume, of_file.value_or(kCustomWiring), dropped);
    return {};
  }
  options.wiring = Wiring();
  options.notice =
      fmt::format("--algorithm {} replaces the [wiring] of {}, {}", given, path,
                  of_file ? "which is that of '" + *of_file + "'" : "which has another exchange");
  return {};
}

Expected<void> keep_algorithm(CLI::App& app, TrainOptions& options, const std::string& text,
                              const std::string& path) {
  auto wiring = Wiring::parse_toml(text, path);
  if (!wiring) return wiring.error();
  const auto exchange = wiring->keys().find("exchange");
  const auto present = effective_wiring(options);
  if (exchange == wiring->keys().end() || !present) return {};  // make_train_job() says so
  const auto of_state = algorithm_in(text);
  const bool named =
      app.get_option("--algorithm")->count() > 0 || options.wiring.keys().count("exchange") == 0;
  const bool other_name = named && of_state && *of_state != options.algorithm;
  const auto here = present->keys().find("exchange");
  const bool other_role = here != present->keys().end() && here->second != exchange->second;
  if (!other_name && !other_role) return {};
  const std::string given = named ? options.algorithm : kCustomWiring;
  drop_algorithm(app, options);
  options.wiring = *std::move(wiring);
  for (auto at = options.places.begin(); at != options.places.end();)
    at = at->first.rfind("wiring.", 0) == 0 ? options.places.erase(at) : std::next(at);
  options.places.erase("--algorithm");
  if (of_state) {
    app.get_option("--algorithm")->add_result(*of_state);
    app.get_option("--algorithm")->run_callback();
  }
  options.notice =
      fmt::format("{} continues with its algorithm '{}': '{}' of {} does not count", options.resume,
                  of_state.value_or(kCustomWiring), given, options.job_file);
  return {};
}

}  // namespace grapevine
