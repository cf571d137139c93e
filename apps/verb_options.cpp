#include "apps/verb_options.hpp"

#include <algorithm>
#include <cctype>

namespace grapevine {

std::string environment_name(const std::string& option) {
  std::string name = "GRAPEVINE_" + option;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

void add_config_file(CLI::App& app) {
  app.set_config("--config", "", "TOML file with options");
  app.allow_config_extras(CLI::config_extras_mode::error);
}

}  // namespace grapevine
