#include "apps/train/train_trace.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "apps/console/verb_options.hpp"
#include "net/addresses.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kLeastTraceLimit = 1 << 20;  // bytes

// Names one start of this machine; empty: the system does not say.
std::string boot_name() {
  std::string name;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), name);
  return name;
}

// Of the real-time clock, at the zero of the monotonic one.
std::int64_t realtime_at_zero_ns() {
  const auto since = [](auto time) {
    return std::chrono::duration_cast<Duration>(time.time_since_epoch()).count();
  };
  return since(std::chrono::system_clock::now()) - since(std::chrono::steady_clock::now());
}

}  // namespace

Expected<void> check_trace_options(const TrainOptions& o) {
  if (o.trace != "on" && o.trace != "off")
    return bad_input("--trace " + o.trace + ": expected on or off");
  if (o.trace_limit != 0)
    if (auto checked = check_least("--trace-limit", o.trace_limit, kLeastTraceLimit,
                                   " (bytes), or 0: no limit");
        !checked)
      return checked;
  return check_least("--trace-sample", o.trace_sample, 1, ", 1: every step");
}

void describe_trace(TrainJob& job) {
  TraceSettings& trace = job.run.trace;
  trace.on = job.options.trace == "on";
  trace.limit = static_cast<std::uint64_t>(job.options.trace_limit);
  TraceHeader& header = trace.header;
  header.run = std::stoull(random_hex(sizeof header.run), nullptr, 16);
  header.process = job.launched ? job.launched->process : 0;
  header.host = machine_name();
  header.boot = boot_name();
  header.pid = ::getpid();
  header.zero_realtime_ns = realtime_at_zero_ns();
  header.sampled = job.options.trace_sample;
  header.version = GRAPEVINE_VERSION;
  header.wiring = job.wiring.keys();
}

Expected<void> place_trace(const std::string& out, bool resumed, TraceSettings& trace) {
  const std::string folder = out + "/trace";
  if (auto made = ensure_writable_directory(folder); !made) return made;
  trace.folder = folder;
  std::error_code ignored;
  TraceHeader& header = trace.header;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const auto name = read_trace_file_name(entry.path().filename().string());
    if (resumed && name && name->process == header.process)
      header.part = std::max(header.part, name->part + 1);
  }
  return {};
}

}  // namespace grapevine
