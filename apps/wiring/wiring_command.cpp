#include "apps/wiring/wiring_command.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <toml++/toml.h>
#include <nlohmann/json.hpp>

#include "algorithms/lockstep/conformance.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "apps/console/json_text.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/train/train_options.hpp"
#include "apps/wiring/wiring_drawing.hpp"
#include "apps/wiring/wiring_tables.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

// A wiring, and where its keys come from.
struct NamedWiring {
  std::string title;   // of the preset, or the file
  std::string paper;   // of the preset; empty: none
  std::string preset;  // the base of the keys; empty: none
  std::string file;    // empty: none
  Wiring wiring;
  Wiring of_preset;

  std::string source_of(const ResolvedKey& key) const {
    if (!key.given) return "default";
    const auto base = of_preset.keys().find(key.key);
    const bool inherited = base != of_preset.keys().end() && base->second == key.value;
    return file.empty() || inherited ? "preset " + preset : file;
  }
};

bool is_preset(const std::string& name) {
  return std::any_of(presets().begin(), presets().end(),
                     [&](const Preset& preset) { return preset.name == name; });
}

NamedWiring of_preset(const Preset& preset) {
  return {preset.title, preset.paper, preset.name, "", preset.wiring, preset.wiring};
}

// A wiring file, or a job file, whose algorithm is then the base.
Expected<NamedWiring> read_wiring_file(const std::string& path) {
  const auto text = read_toml_file(path, "a preset's name, or a TOML file with a table [wiring]");
  if (!text) return text.error();
  const auto own = Wiring::parse_toml(*text, path);
  if (!own) return own.error();
  const auto algorithm = toml::parse(*text)["algorithm"].value<std::string>();
  if (own->keys().empty() && !algorithm)
    return bad_input(path + ": has neither a table [wiring] nor an algorithm: give one of them");
  if (!algorithm && lacks_outermost_level(*own)) return level_missing(path);
  // As train has it: a wiring that names its exchange needs no preset.
  const bool complete = own->keys().count("exchange") > 0;
  const auto preset = find_preset(algorithm  ? *algorithm
                                  : complete ? kCustomWiring
                                             : TrainOptions().algorithm);
  if (!preset) return bad_input(path + ": " + preset.error().message);
  NamedWiring named = of_preset(*preset);
  named.file = path;
  named.wiring = on_top_of(preset->wiring, *own);
  return named;
}

Expected<NamedWiring> find_wiring(const std::string& name) {
  std::error_code none;
  const bool looks_like_a_file = name.find('/') != std::string::npos ||
                                 std::filesystem::path(name).extension() == ".toml" ||
                                 std::filesystem::exists(name, none);
  if (!is_preset(name) && looks_like_a_file) return read_wiring_file(name);
  const auto preset = find_preset(name);
  if (!preset) return bad_input(preset.error().message + "; or give a TOML file");
  return of_preset(*preset);
}

// Whether the parts fit this number of ranks, with the default optimizer where the wiring allows.
Expected<void> check_ranks(const Plan& plan, std::int32_t ranks) {
  if (auto checked = check_least("--ranks", ranks, 1); !checked) return checked;
  OptimizerConfig optimizer;
  optimizer.momentum = plan.role->uses_momentum(plan) ? 0.9 : 0;
  const auto parts = make_parts(plan, Horizon{1000, 100}, *LrSchedule::make({}), optimizer, ranks);
  return parts ? Expected<void>{} : parts.error();
}

// Of each level, the innermost first.
std::string exchanges_of(const Resolved& resolved) {
  std::string text;
  for (const ResolvedKey& key : resolved.keys)
    if (level_key(key.key).key == "exchange")
      text += (text.empty() ? "exchange = '" : " inside '") + key.value + "'";
  return text;
}

// A comment in front of the table, and one behind each value.
void print_toml(const NamedWiring& named, const Resolved& resolved, std::ostream& out) {
  if (!named.preset.empty()) out << "# " << named.preset << ": " << named.title << "\n";
  if (!named.paper.empty()) out << "# " << named.paper << "\n";
  std::vector<std::pair<std::string, std::string>> rows;  // a header has no comment
  std::size_t width = 0;
  auto sourced = resolved.keys.begin();
  for (const WiringTable& table : wiring_tables(resolved.keys)) {
    rows.emplace_back((rows.empty() ? "" : "\n") + table.header, "");
    for (const ResolvedKey& key : table.keys) {
      // Without a value: the explanation says what holds.
      std::string row = key.value.empty() ? "# " + key.key : toml_line(key.key, key.value);
      width = std::max(width, row.size());
      rows.emplace_back(std::move(row), named.source_of(*sourced++) + ": " + key.explanation);
    }
  }
  if (!named.preset.empty()) out << toml_line("algorithm", named.preset) << "\n";
  for (const auto& [row, comment] : rows)
    out << (comment.empty() ? row + "\n" : fmt::format("{:<{}}  # {}\n", row, width, comment));
}

void print_json(const NamedWiring& named, const Resolved& resolved, std::ostream& out) {
  ordered_json object;
  object["name"] = named.preset;
  object["title"] = named.title;
  object["paper"] = named.paper;
  object["file"] = named.file;
  for (const ResolvedKey& key : resolved.keys)
    object["keys"][key.key] = {
        {"value", key.value}, {"source", named.source_of(key)}, {"explanation", key.explanation}};
  out << json_text(object) << '\n';
}

class WiringCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("action", action_, "list, keys, show or check")->required();
    app.add_option("name", name_, "a preset, or a TOML file with a table [wiring]");
    ranks_option_ = add_option(app, "ranks", ranks_, "number of ranks that it has to fit");
    add_switch(app, "json", json_, "print one JSON object");
    add_switch(app, "dot", dot_, "show: print a Graphviz drawing of actors and messages");
    add_switch(app, "markdown", markdown_, "list, keys: print a table of the documentation");
    add_switch(app, "conformance", conformance_,
               "check: run the roles on small problems and print the promises that they break");
    app.footer(
        "keys                all keys, with their values and where they count\n"
        "list                presets with their papers\n"
        "show NAME|FILE      all keys that count, with their values and where these come from\n"
        "check FILE          exit code 0, or 2 and the reason; 1 where roles break promises");
  }

  Expected<void> run(Console& console) override {
    if (action_ == "list" || action_ == "keys") return list(console.out);
    if (action_ != "show" && action_ != "check")
      return unknown_name("action", action_, {"list", "keys", "show", "check"});
    if (markdown_) return bad_input("--markdown goes with list and keys");
    if (name_.empty())
      return bad_input("wiring " + action_ + ": which one? Give a preset or a TOML file");
    if (dot_ && (json_ || action_ != "show"))
      return bad_input("--dot goes with show, and not with --json");
    if (conformance_ && action_ != "check") return bad_input("--conformance goes with check");
    const auto named = find_wiring(name_);
    if (!named) return named.error();
    const auto resolved = resolve_keys(named->wiring);
    if (!resolved)
      return named->file.empty()
                 ? resolved.error()
                 : Error{resolved.error().code, named->file + ": " + resolved.error().message};
    if (conformance_)
      if (auto kept = check_promises(named->wiring, resolved->plan, console.out); !kept)
        return kept;
    return dot_ ? draw(*named, resolved->plan, console.out) : print(*named, *resolved, console.out);
  }

 private:
  Expected<void> list(std::ostream& out) const {
    if (!name_.empty() || dot_ || (json_ && markdown_))
      return bad_input("wiring " + action_ + " takes --json or --markdown alone");
    const TableFormat format = json_       ? TableFormat::json
                               : markdown_ ? TableFormat::markdown
                                           : TableFormat::text;
    action_ == "keys" ? print_keys(format, out) : print_presets(format, out);
    return {};
  }

  Expected<void> print(const NamedWiring& named, const Resolved& resolved,
                       std::ostream& out) const {
    if (ranks_option_->count() > 0)
      if (auto fits = check_ranks(resolved.plan, ranks_); !fits) return fits;
    if (json_)
      print_json(named, resolved, out);
    else if (action_ == "show")
      print_toml(named, resolved, out);
    else
      out << name_ << ": valid, " << exchanges_of(resolved) << "\n";
    return {};
  }

  Expected<void> check_promises(const Wiring& wiring, const Plan& plan, std::ostream& out) const {
    if (plan.hierarchy == 0) return count_nodes(plan, 1).error();
    ConformanceOptions options;
    if (ranks_option_->count() > 0) options.ranks = {ranks_};
    const std::int32_t of_node = std::max(1, plan.hierarchy);
    if (ranks_option_->count() == 0)
      for (std::int32_t& ranks : options.ranks) ranks *= of_node;
    const std::vector<std::string> violations = check_conformance(wiring, options);
    if (violations.empty()) return {};
    for (const std::string& violation : violations) out << violation << '\n';
    return Error{
        Errc::failed,
        fmt::format("wiring check {}: the roles break promises to the engine: {}, printed "
                    "above",
                    name_,
                    violations.size() == 1 ? "a violation"
                                           : fmt::format("{} violations", violations.size()))};
  }

  Expected<void> draw(const NamedWiring& named, const Plan& plan, std::ostream& out) const {
    return draw_wiring(plan, ranks_, named.preset.empty() ? named.file : named.preset, out);
  }

  std::string action_;
  std::string name_;
  std::int32_t ranks_ = 4;
  CLI::Option* ranks_option_ = nullptr;
  bool json_ = false;
  bool dot_ = false;
  bool markdown_ = false;
  bool conformance_ = false;
};

}  // namespace

std::unique_ptr<Command> make_wiring_command() { return std::make_unique<WiringCommand>(); }

}  // namespace grapevine
