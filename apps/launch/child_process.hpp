// ChildProcess: a program that this one starts, reads line by line, signals and outlives.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/cluster/process_supervision.hpp"
#include "messages/expected.hpp"
#include "net/file_descriptor.hpp"

namespace grapevine {

struct ChildCommand {
  std::vector<std::string> arguments;  // the program first: a path, or a name to find in PATH
  // "KEY=VALUE" replaces a variable of this process; "KEY" removes one.
  std::vector<std::string> environment;
  // Signals go as names into its standard input (see ssh_command()); else that is /dev/null.
  bool signals_by_input = false;
  std::string first_line;  // of that input, before any signal
};

// The program of a job's processes: the executable that runs here, or another one that the variable
// GRAPEVINE_LAUNCH_PROGRAM names (for tests). To be called at the start: once the file is replaced,
// by an upgrade for example, the system names it no more. Errors (io): the system does not name the
// executable.
Expected<std::string> job_program();

// Each child takes three descriptors: from now on this process may have as many as the system lets
// it. Children begin with the limit that it had.
void raise_descriptor_limit();

// Whole lines of a stream that arrives in pieces.
class LineBuffer {
 public:
  using OnLine = std::function<void(const std::string& line)>;  // without its newline
  void append(const char* bytes, std::size_t count, const OnLine& on_line);
  // Text without a newline is a line, too.
  void finish(const OnLine& on_line);

 private:
  std::string part_;
};

// The child leads a process group of its own, so that a terminal's Ctrl-C reaches it once, from
// here. It begins with SIGUSR1 ignored, which asks for a checkpoint only where the program handles
// it. The kernel kills it when this process dies, for any reason. All calls on one thread, the
// one that started it; none blocks.
class ChildProcess {
 public:
  // Errors (io): no such program, no more descriptors or processes.
  static Expected<std::unique_ptr<ChildProcess>> start(const ChildCommand& command);
  // Kills the group, and reaps the child.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // To poll for reading; negative ones are closed. end(): readable once the child has ended.
  int out() const { return out_.descriptor.get(); }
  int err() const { return err_.descriptor.get(); }
  int end() const { return end_.get(); }

  // Reads one piece of its output.
  void read_out(const LineBuffer::OnLine& on_line) { read(out_, on_line); }
  void read_err(const LineBuffer::OnLine& on_line) { read(err_, on_line); }

  // To the process alone. Nothing happens where it has ended.
  void signal(int number);
  // SIGKILL to its whole group.
  void kill_group();

  // How it ended, or nothing where it runs still. Then the rest of its group is killed, the
  // rest of its output goes to the callbacks, and all descriptors are closed.
  std::optional<ProcessEnd> reap(const LineBuffer::OnLine& on_out,
                                 const LineBuffer::OnLine& on_err);

 private:
  struct Stream {
    FileDescriptor descriptor;
    LineBuffer lines;
  };

  ChildProcess() = default;
  void say(const std::string& text);
  // False where nothing is there at present, or nothing will be.
  static bool read(Stream& stream, const LineBuffer::OnLine& on_line);
  static void finish(Stream& stream, const LineBuffer::OnLine& on_line);

  pid_t pid_ = -1;  // -1 once reaped
  FileDescriptor in_;
  FileDescriptor end_;
  Stream out_;
  Stream err_;
};

}  // namespace grapevine
