#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <ostream>

#include "apps/command.hpp"
#include "messages/exception_line.hpp"
#include "messages/exit_code.hpp"
#include "messages/names.hpp"

namespace grapevine {
namespace {

// One line, whatever a library put into its message.
std::string one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Whether standard error takes a line without waiting.
bool err_is_read() {
  pollfd wait{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&wait, 1, 0) > 0;
}

int report(Console& console, const std::string& message, int code) {
  // Both streams may have the reader that stands still.
  if (console.err_stuck || (console.out_stuck && !err_is_read())) return code;
  console.err << "error: " << one_line(message) << std::endl;
  return code;
}

std::vector<std::string> names_of(const std::vector<CommandEntry>& table) {
  std::vector<std::string> names;
  for (const CommandEntry& entry : table) names.push_back(entry.name);
  return names;
}

// CLI11 says "The following argument was not expected: --x"; people want to know what to type.
std::string usage_message(const CLI::Error& error, const std::string& verb) {
  const std::string help = "see 'grapevine " + verb + (verb.empty() ? "" : " ") + "--help'";
  return one_line(error.what()) + ": " + help;
}

// The option that was meant, where one is near.
std::string unknown_option(const CLI::App& app, const std::string& fallback) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const std::string& extra : app.remaining())
    if (extra.rfind("--", 0) == 0)
      return unknown_name("option", extra.substr(0, extra.find('=')), known).message;
  return fallback;
}

int run_verb(const CommandEntry& entry, const std::vector<std::string>& arguments,
             Console& console) {
  CLI::App app(entry.description, "grapevine " + entry.name);
  const std::unique_ptr<Command> command = entry.make();
  command->declare(app);
  // CLI11 takes the arguments last one first.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    console.out << app.help();
    return 0;
  } catch (const CLI::ExtrasError& error) {
    return report(console, unknown_option(app, usage_message(error, entry.name)), kExitBadInput);
  } catch (const CLI::ParseError& error) {
    return report(console, usage_message(error, entry.name), kExitBadInput);
  }
  const Expected<void> done = command->run(console);
  if (console.out_stuck)
    console.err.tie(nullptr);  // which would flush out first
  else
    console.out.flush();
  const bool written = console.out && !console.out_stuck && !console.err_stuck;
  if (done && written) return 0;
  if (done)
    return report(console,
                  "the results could not be written to stdout: is its disk full, or its "
                  "reader gone?",
                  kExitFailed);
  return report(console, done.error().message,
                console.exit_code.value_or(exit_code_of(done.error().code)));
}

void print_overview(const std::vector<CommandEntry>& table, std::ostream& out) {
  out << "Grapevine " GRAPEVINE_VERSION ": asynchronous distributed training with actors.\n\n"
      << "Usage: grapevine VERB [options]\n\n";
  for (const CommandEntry& entry : table)
    out << "  " << entry.name << std::string(12 - std::min<std::size_t>(11, entry.name.size()), ' ')
        << entry.description << "\n";
  out << "\n'grapevine VERB --help' lists a verb's options; 'grapevine train' alone trains lenet "
         "on "
         "glyphs.\n";
}

}  // namespace

int run_command_line(const std::vector<CommandEntry>& table,
                     const std::vector<std::string>& arguments, Console& console) {
  if (arguments.empty()) {
    print_overview(table, console.err);
    return report(console, "no verb given: choose one of the above", kExitBadInput);
  }
  const std::string& verb = arguments.front();
  if (verb == "--help" || verb == "-h" || verb == "help") {
    print_overview(table, console.out);
    return 0;
  }
  if (verb == "--version") {
    console.out << "grapevine " GRAPEVINE_VERSION "\n";
    return 0;
  }
  const auto entry = std::find_if(table.begin(), table.end(),
                                  [&](const CommandEntry& e) { return e.name == verb; });
  if (entry == table.end())
    return report(console, unknown_name("verb", verb, names_of(table)).message, kExitBadInput);
  try {
    return run_verb(*entry, {arguments.begin() + 1, arguments.end()}, console);
  } catch (...) {
    // Nothing should come here; what does is still one line and an exit code.
    return report(console, exception_line(std::current_exception()), kExitFailed);
  }
}

}  // namespace grapevine
