#include "actors/cluster/process_supervision.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "messages/exit_code.hpp"
#include "messages/text/signal_name.hpp"

namespace grapevine {

std::string text_of(const RunBegin& begin) {
  return fmt::format("run: {} of {} processes have joined, at least {} remain", begin.processes,
                     begin.places, begin.least);
}

std::optional<RunBegin> parse_run_begin(const std::string& line) {
  RunBegin begin;
  if (std::sscanf(line.c_str(), "run: %d of %d processes have joined, at least %d remain",
                  &begin.processes, &begin.places, &begin.least) != 3)
    return std::nullopt;
  const bool sane = begin.processes >= 1 && begin.places >= begin.processes && begin.least >= 1;
  if (!sane || line != text_of(begin)) return std::nullopt;
  return begin;
}

std::string end_text(const std::string& who, const ProcessEnd& end) {
  if (end.signal != 0)
    return fmt::format("{} was killed by signal {}", who, signal_name(end.signal));
  return fmt::format("{} exited with code {}", who, end.exit_code);
}

void HeldError::add(std::string line, const Write& write) {
  release(write);
  if (line.rfind(kErrorStart, 0) == 0)
    line_ = std::move(line);
  else
    write(std::move(line));
}

void HeldError::release(const Write& write) {
  if (!line_.empty()) write(std::exchange(line_, ""));
}

std::string HeldError::text() const {
  return line_.empty() ? "" : line_.substr(sizeof kErrorStart - 1);
}

bool GracePeriod::begin(Time now, Duration grace) {
  const Time at = now + grace;
  if (killed() || (kill_at_ && *kill_at_ <= at)) return false;
  kill_at_ = at;
  return true;
}

void GracePeriod::kill(Time now) {
  kill_at_.reset();
  give_up_at_ = now + kill_timeout_;
}

GracePeriod::Due GracePeriod::due(Time now) const {
  if (give_up_at_ && now >= *give_up_at_) return Due::give_up;
  return kill_at_ && now >= *kill_at_ ? Due::kill : Due::nothing;
}

}  // namespace grapevine
