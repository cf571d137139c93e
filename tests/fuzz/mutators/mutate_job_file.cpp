#include "apps/train/train_options.hpp"
#include "tests/fuzz/mutators/mutators.hpp"
#include "tests/fuzz/mutators/wiring_lines.hpp"

namespace grapevine::fuzzing {
namespace {

std::vector<std::string> job_lines() {
  std::vector<std::string> lines = wiring_lines();
  TrainOptions options;
  CLI::App app;
  declare_train_options(app, options);
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    for (const std::string& value : {option->get_default_str(), std::string("2")})
      if (!value.empty()) lines.push_back(toml_line(name, value));
    if (option->get_items_expected() == 0) lines.push_back(toml_line(name, "true"));
  }
  for (const Preset& preset : presets()) lines.push_back(toml_line("algorithm", preset.name));
  return lines;
}

}  // namespace

std::string mutate_job_file(std::string_view text, Rng& rng) {
  static const std::vector<std::string> lines = job_lines();
  return mutate_toml(text, lines, rng);
}

}  // namespace grapevine::fuzzing
