#include "apps/plot/gnuplot.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "actors/record/files.hpp"
#include "apps/console/read_up_to.hpp"
#include "apps/launch/child_group.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;
using GnuplotClock = std::chrono::steady_clock;

constexpr std::size_t kLargestFigure = std::size_t{1} << 28;  // bytes
constexpr std::size_t kKeptComplaints = 20;                   // lines

// As execvp() finds it.
bool can_run(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((fs::path(folder.empty() ? "." : folder) / program).c_str(), X_OK) == 0)
      return true;
  return false;
}

// In the folder for temporary files, until it is destroyed. Its path is absolute: gnuplot takes
// other names for commands where they begin with '|' or '<'.
Expected<AtomicFile> temporary_file() {
  std::error_code error;
  const fs::path folder = fs::absolute(fs::temp_directory_path(error), error);
  if (error) return Error{Errc::io, "no folder for temporary files (TMPDIR): " + error.message()};
  return AtomicFile::create(folder / "grapevine-plot");
}

// What gnuplot wrote to stderr, and how it ended.
struct GnuplotEnd {
  std::vector<std::string> complaints;
  ProcessEnd end;
};

Expected<GnuplotEnd> wait_for_gnuplot(const ChildCommand& command, const GnuplotProgram& program) {
  GnuplotEnd result;
  ChildGroup group([&result](std::size_t /*child*/, bool to_err, const std::string& line) {
    if (to_err && result.complaints.size() < kKeptComplaints) result.complaints.push_back(line);
  });
  if (auto started = group.start(command); !started) return started.error();
  const auto deadline = GnuplotClock::now() + program.timeout;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - GnuplotClock::now());
    if (left.count() <= 0)
      return Error{Errc::timeout,
                   "gnuplot was stopped: it did not draw the figure within " +
                       number_text(static_cast<double>(program.timeout.count()) / 1000) +
                       " s; plot fewer runs, or try again"};
    std::vector<pollfd> waits;
    group.add_to(waits, true);
    ::poll(waits.data(), waits.size(), static_cast<int>(left.count()));
    for (const ChildGroup::Ended& ended : group.handle(waits)) {
      result.end = ended.end;
      return result;
    }
  }
}

// Of several lines (the script's line, a caret below it, the reason) the last that says something.
std::string reason_of(const GnuplotEnd& gnuplot) {
  for (auto line = gnuplot.complaints.rbegin(); line != gnuplot.complaints.rend(); ++line)
    if (line->find_first_not_of(" \t^") != std::string::npos) return *line;
  return end_text("it", gnuplot.end);
}

}  // namespace

Expected<void> find_gnuplot(const GnuplotProgram& program) {
  if (can_run(program.name)) return {};
  return Error{Errc::unavailable, program.name +
                                      " is not installed, which draws the figures: install the "
                                      "package gnuplot-nox (apt-get install gnuplot-nox)"};
}

Expected<std::string> run_gnuplot(const std::string& script, const GnuplotProgram& program) {
  if (auto found = find_gnuplot(program); !found) return found.error();
  auto file = temporary_file();
  if (!file) return file.error();
  file->stream() << script;
  if (auto written = file->flush(); !written) return written.error();
  const auto figure = temporary_file();
  if (!figure) return figure.error();
  ChildCommand command;
  // -d: without the user's settings; -c: the script, and its arguments.
  command.arguments = {program.name, "-d", "-c", file->temporary_path().string(),
                       figure->temporary_path().string()};
  const auto gnuplot = wait_for_gnuplot(command, program);
  if (!gnuplot) return gnuplot.error();
  if (gnuplot->end.exit_code != 0)
    return Error{Errc::failed, "gnuplot could not draw the figure: " + reason_of(*gnuplot)};
  std::ifstream in(figure->temporary_path(), std::ios::binary);
  std::string bytes = read_up_to(in, kLargestFigure);
  if (bytes.size() > kLargestFigure)
    return Error{Errc::failed, "the figure is larger than 256 MiB: plot fewer runs"};
  return bytes;
}

}  // namespace grapevine
