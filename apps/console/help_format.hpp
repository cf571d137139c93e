// The format of `--help`: options in groups, one line or paragraph each, no longer than a terminal
// is wide.
#pragma once
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace grapevine {

// `--help` shows the groups that most users need, `--help-all` all of them. That options can be set
// in the environment is in one line at the end.
class HelpFormat : public CLI::Formatter {
 public:
  // Groups that `--help` leaves out.
  void leave_out(const std::string& group) { left_out_.insert(group); }

  void show_all() { shows_all_ = true; }

  // No paragraph is wider than this, or than kMostWidth.
  void fit(int columns);

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  static constexpr int kMostWidth = 100;

  std::set<std::string> left_out_;
  int width_ = kMostWidth;
  bool shows_all_ = false;
};

// Gives a verb the format above; all its options are in one group. REQUIRES: called before it is
// parsed. The second one puts the named options (without dashes) into `group`, which only
// `--help-all` shows; `group` is a heading, e.g. "Device".
void format_help(CLI::App& app);
void show_in_help_all(CLI::App& app, const std::string& group,
                      const std::vector<std::string>& options);
// After the declaration of the options: for a terminal of so many columns.
void fit_help(CLI::App& app, int columns);
// The text of `--help-all`.
std::string help_of_all(CLI::App& app);

}  // namespace grapevine
