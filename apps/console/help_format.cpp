#include "apps/console/help_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "apps/console/text/display_width.hpp"

namespace grapevine {
namespace {

constexpr int kLeastWidth = 60;  // in narrower terminals lines break at their edge
constexpr std::size_t kTextColumn = 30;

// `text` in lines from column `left`, where the first one begins, to `width`.
std::string wrapped(const std::string& text, std::size_t left, int width) {
  const auto lines = wrapped_lines(text, width - static_cast<int>(left), "");
  return fmt::format("{}\n", fmt::join(lines, "\n" + std::string(left, ' ')));
}

std::shared_ptr<HelpFormat> help_format_of(const CLI::App& app) {
  return std::dynamic_pointer_cast<HelpFormat>(app.get_formatter());
}

}  // namespace

void HelpFormat::fit(int columns) { width_ = std::clamp(columns, kLeastWidth, kMostWidth); }

// CLI11 puts empty lines between groups, also between those that are left out.
std::string HelpFormat::make_help(const CLI::App* app, std::string name,
                                  CLI::AppFormatMode mode) const {
  std::istringstream lines(CLI::Formatter::make_help(app, std::move(name), mode));
  std::string out;
  bool was_empty = false;
  for (std::string line; std::getline(lines, line); was_empty = line.empty())
    if (!line.empty() || !was_empty) out += line + '\n';
  return out;
}

std::string HelpFormat::make_group(std::string group, bool is_positional,
                                   std::vector<const CLI::Option*> options) const {
  if (!shows_all_ && left_out_.count(group) > 0) return "";
  return CLI::Formatter::make_group(std::move(group), is_positional, std::move(options));
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  const std::string name =
      "  " + make_option_name(option, is_positional) + make_option_opts(option);
  const bool beside = name.size() + 1 < kTextColumn;
  return name +
         (beside ? std::string(kTextColumn - name.size(), ' ')
                 : '\n' + std::string(kTextColumn, ' ')) +
         wrapped(make_option_desc(option), kTextColumn, width_);
}

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  const std::string all = CLI::Formatter::make_option_opts(option);
  const auto begin = all.find(" (Env:");
  if (begin == std::string::npos) return all;
  return all.substr(0, begin) + all.substr(all.find(')', begin) + 1);
}

std::string HelpFormat::make_footer(const CLI::App* app) const {
  std::string out;
  if (app->get_help_all_ptr() != nullptr && !shows_all_) out += "More options: --help-all\n";
  const auto options = app->get_options();
  const auto example =
      std::find_if(options.rbegin(), options.rend(), [](const CLI::Option* option) {
        return !option->get_envname().empty() && !option->get_lnames().empty();
      });
  if (example != options.rend())
    out += wrapped("Options can also be set in the environment, e.g. " + (*example)->get_envname() +
                       " for --" + (*example)->get_lnames().front() + ".",
                   0, width_);
  std::istringstream own(app->get_footer());
  std::string lines;
  for (std::string line; std::getline(own, line);) {
    const auto indent = std::min(line.find_first_not_of(' '), line.size());
    lines += std::string(indent, ' ') + wrapped(line.substr(indent), indent, width_);
  }
  return lines.empty() ? out : out + "\n" + lines;
}

void format_help(CLI::App& app) { app.formatter(std::make_shared<HelpFormat>()); }

void fit_help(CLI::App& app, int columns) {
  if (const auto format = help_format_of(app)) format->fit(columns);
}

void show_in_help_all(CLI::App& app, const std::string& group,
                      const std::vector<std::string>& options) {
  if (app.get_help_all_ptr() == nullptr)
    app.set_help_all_flag("--help-all", "Print all options and exit");
  if (const auto format = help_format_of(app)) format->leave_out(group);
  for (const std::string& option : options) app.get_option("--" + option)->group(group);
}

std::string help_of_all(CLI::App& app) {
  if (const auto format = help_format_of(app)) format->show_all();
  return app.help();
}

}  // namespace grapevine
