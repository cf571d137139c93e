// Command: one verb of the grapevine executable. One file per verb.
#pragma once
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "messages/expected.hpp"

namespace grapevine {

// Where a verb reads and writes; tests pass string streams.
struct Console {
  std::ostream& out;      // results; machine output with --json
  std::ostream& err;      // progress and errors
  bool terminal = false;  // err is a terminal
  // A verb that ended without one of its threads: the process must end without destructors.
  bool thread_left_behind = false;
  // The same, where that thread waits for a reader of the stream: more would wait, too.
  bool out_stuck = false;
  bool err_stuck = false;
  // Of a verb that failed, where the kind of its error does not determine it.
  std::optional<int> exit_code = std::nullopt;
};

// A verb declares its options on a CLI11 sub-command and runs after parsing. The code of its error
// gives the exit code: see Errc. main() prints "error: <message>" as the last line of err.
class Command {
 public:
  virtual ~Command() = default;
  virtual void declare(CLI::App& app) = 0;
  virtual Expected<void> run(Console& console) = 0;
  // Whether this process multiplies matrices itself, for which it needs memory of its own.
  virtual bool computes() const { return true; }
};

// Name, one-line description, factory: the table in verbs.cpp.
struct CommandEntry {
  std::string name;
  std::string description;
  std::function<std::unique_ptr<Command>()> make;
};

// Parses `arguments` (without the program's name) against the table and runs the verb: the whole of
// main() but for the streams. Returns the exit code (messages/exit_code.hpp).
int run_command_line(const std::vector<CommandEntry>& table,
                     const std::vector<std::string>& arguments, Console& console);

}  // namespace grapevine
