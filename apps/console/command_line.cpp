#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <ostream>

#include <spdlog/spdlog.h>

#include "actors/cluster/process_supervision.hpp"
#include "actors/protocol/build_version.hpp"
#include "apps/console/command.hpp"
#include "apps/console/help_format.hpp"
#include "apps/console/text/terminal.hpp"
#include "apps/console/usage_error.hpp"
#include "apps/launched/launcher_environment.hpp"
#include "gpu/threads/math_threads.hpp"
#include "messages/exit_code.hpp"
#include "messages/text/exception_line.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

// One line without control characters, for any message of a library or a file.
std::string as_one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  for (char& c : text) {
    if (c == '\n' || c == '\t') c = ' ';
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = '?';
  }
  return text;
}

// Whether standard error takes a line without waiting.
bool err_is_read() {
  pollfd wait{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&wait, 1, 0) > 0;
}

int report(Console& console, const std::string& message, int code) {
  // Both streams may have a stopped reader.
  if (console.err_stuck || (console.out_stuck && !err_is_read())) return code;
  console.err << "error: " << as_one_line(message) << std::endl;
  return code;
}

std::vector<std::string> names_of(const std::vector<CommandEntry>& table) {
  std::vector<std::string> names;
  for (const CommandEntry& entry : table) names.push_back(entry.name);
  return names;
}

// After the output of a verb or of this file to stdout.
int finish_output(Console& console) {
  if (console.out_stuck)
    console.err.tie(nullptr);  // which would flush out first
  else
    console.out.flush();
  if (console.out && !console.out_stuck && !console.err_stuck) return 0;
  return report(console,
                "the results could not be written to stdout: is its disk full, or its "
                "reader gone?",
                kExitFailed);
}

// Variables that this program, its scripts and its benchmarks read beside those of options.
const std::vector<std::string>& other_variables() {
  static const std::vector<std::string> names = {
      "GRAPEVINE_LOG_LEVEL",      "GRAPEVINE_CLUSTER_SECRET", "GRAPEVINE_JOB_TOKEN",
      "GRAPEVINE_LAUNCH_PROGRAM", "GRAPEVINE_REQUEUE_FOLDER", "GRAPEVINE_JOBS",
      "GRAPEVINE_BENCH_SMOKE",    "GRAPEVINE_CUDA_BUILD",     "GRAPEVINE_GPU_BUILD",
      "GRAPEVINE_EMULATION_SEED", "GRAPEVINE_WERROR",         kListenVariable,
      kReportBeginVariable,       kLossEndsJobVariable,       kPoolVariable};
  return names;
}

// Of several processes that a launcher started, the first one prints it; `launch` leaves it to that
// one, but for its own options.
void warn_of_unknown_variables(const std::vector<CommandEntry>& table, const std::string& verb) {
  const auto launched =
      read_launcher_environment([](const char* name) { return std::getenv(name); });  // NOLINT
  if (!launched || (*launched && (*launched)->process > 0)) return;
  std::vector<std::string> environment;
  const std::string start = verb == "launch" ? "GRAPEVINE_LAUNCH_" : "GRAPEVINE_";
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (std::string(*entry).rfind(start, 0) == 0) environment.emplace_back(*entry);
  if (environment.empty()) return;
  std::vector<std::string> known = other_variables();
  for (const CommandEntry& entry : table) {
    CLI::App app;
    const std::unique_ptr<Command> command = entry.make();
    command->declare(app);
    for (const CLI::Option* option : app.get_options()) known.push_back(option->get_envname());
  }
  for (const std::string& warning : unknown_variables(environment, known))
    spdlog::warn("{}", warning);
}

int run_verb(const CommandEntry& entry, const std::vector<std::string>& arguments,
             Console& console) {
  CLI::App app(entry.description, "grapevine " + entry.name);
  const std::unique_ptr<Command> command = entry.make();
  format_help(app);
  command->declare(app);
  if (::isatty(STDOUT_FILENO) == 1) fit_help(app, detect_terminal(STDOUT_FILENO).columns());
  const VerbUsage usage{app, entry.name, arguments};
  // CLI11 takes the arguments last one first.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    console.out << app.help();
    return finish_output(console);
  } catch (const CLI::CallForAllHelp&) {
    console.out << help_of_all(app);
    return finish_output(console);
  } catch (const CLI::ParseError& error) {
    return report(console, usage_message(usage, error), kExitBadInput);
  }
  const Expected<void> room = command->computes() ? take_product_memory() : Expected<void>();
  const Expected<void> done = room ? command->run(console) : room;
  if (done) return finish_output(console);
  if (console.out_stuck)
    console.err.tie(nullptr);  // which would flush out first
  else
    console.out.flush();
  return report(console, with_variable(usage, done.error()).message,
                console.exit_code.value_or(exit_code_of(done.error().code)));
}

void print_overview(const std::vector<CommandEntry>& table, std::ostream& out) {
  out << "Grapevine " GRAPEVINE_VERSION ": asynchronous distributed training with actors.\n\n"
      << "Usage: grapevine COMMAND [options]\n\n";
  for (const CommandEntry& entry : table)
    out << "  " << entry.name << std::string(12 - std::min<std::size_t>(11, entry.name.size()), ' ')
        << entry.description << "\n";
  out << "\n'grapevine COMMAND --help' lists the options of a command.\n"
         "'grapevine train' alone trains lenet on glyphs.\n";
}

}  // namespace

int run_command_line(const std::vector<CommandEntry>& table,
                     const std::vector<std::string>& arguments, Console& console) {
  if (arguments.empty()) {
    print_overview(table, console.err);
    return report(console, "no command given: choose one of the above", kExitBadInput);
  }
  const std::string& verb = arguments.front();
  if (verb == "--help" || verb == "-h" || verb == "help") {
    print_overview(table, console.out);
    return finish_output(console);
  }
  if (verb == "--version") {
    console.out << "grapevine " << build_version() << "\n";
    return finish_output(console);
  }
  const auto entry = std::find_if(table.begin(), table.end(),
                                  [&](const CommandEntry& e) { return e.name == verb; });
  if (entry == table.end())
    return report(console, unknown_name("command", verb, names_of(table)).message, kExitBadInput);
  try {
    warn_of_unknown_variables(table, verb);
    return run_verb(*entry, {arguments.begin() + 1, arguments.end()}, console);
  } catch (...) {
    // No exception should arrive here; one that does still gives one line and an exit code.
    return report(console, exception_line(std::current_exception()), kExitFailed);
  }
}

}  // namespace grapevine
