#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "apps/console/verb_options.hpp"
#include "apps/train/train_options.hpp"
#include "tests/fuzz/fuzz_targets.hpp"
#include "tests/fuzz/scratch_file.hpp"

namespace grapevine {
namespace {

// The options of `train`, declared once: that takes longer than to read a file.
class TrainCommandLine {
 public:
  TrainCommandLine() { declare_train_options(app, options); }

  void reset() {
    app.clear();
    options = TrainOptions{};
  }

  TrainOptions options;
  CLI::App app;
};

void check_travelling(const std::vector<std::string>& arguments) {
  static TrainCommandLine remote;
  remote.reset();
  try {
    remote.app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    GRAPEVINE_CHECK(false, "arguments are refused on another machine: ", error.what());
  }
  const std::vector<std::string> again = travelling_arguments(remote.app, remote.options);
  for (std::size_t i = 0; i < std::min(again.size(), arguments.size()); ++i)
    GRAPEVINE_CHECK(again[i] == arguments[i], "the argument ", arguments[i], " becomes ", again[i]);
  GRAPEVINE_CHECK(again.size() == arguments.size(), "arguments are lost on another machine");
}

}  // namespace

void fuzz_one_job_file(const std::uint8_t* data, std::size_t size) {
  static TrainCommandLine command;
  // As read_toml_file() does, without a file.
  auto text = check_toml_text(std::string(fuzzing::text_of(data, size)), "job.toml", "a job file");
  if (!text) return check_one_line(text.error());
  command.reset();
  command.options.job_file = "job.toml";
  command.options.job_text = *std::move(text);
  if (auto read = read_job_file(command.app, command.options); !read)
    return check_one_line(read.error());
  name_own_wiring(command.app, command.options);
  if (auto settled = settle_length(command.app, command.options); !settled)
    return check_one_line(settled.error());
  const auto wiring = effective_wiring(command.options);
  if (!wiring) return check_one_line(wiring.error());
  const auto fits = check_momentum(command.app, command.options);
  if (!fits) check_one_line(fits.error());
  check_travelling(travelling_arguments(command.app, command.options));
}

}  // namespace grapevine
