#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "messages/trace/trace_format.hpp"
#include "tests/fuzz/mutators/mutators.hpp"
#include "tests/fuzz/trace_input.hpp"
#include "tests/messages/trace/random_records.hpp"

namespace grapevine::fuzzing {
namespace {

using Frames = std::vector<std::string>;  // each: its type, then its body

constexpr Rank kRanks = 4;

std::int32_t below(std::int32_t end, Rng& rng) {
  return static_cast<std::int32_t>(rng() % static_cast<std::uint64_t>(end));
}

// Mostly early and close together, as the times of one run.
std::int64_t any_time(Rng& rng) {
  return rng() % 8 == 0 ? testing_trace::random_whole<std::int64_t>(rng)
                        : std::int64_t{100'000'000} * below(40, rng);
}

TraceHeader any_header(Rng& rng) {
  TraceHeader header;
  header.run = 77 + rng() % 2;
  header.process = below(3, rng);
  header.processes = 1 + below(3, rng);
  header.ranks = {header.process};
  header.workers = kRanks - below(3, rng) * below(2, rng);
  header.servers = below(2, rng) * below(3, rng);
  header.spare = below(2, rng);
  header.boot = rng() % 2 == 0 ? "boot" : std::to_string(header.process);
  header.zero_monotonic_ns = any_time(rng);
  header.zero_realtime_ns = any_time(rng);
  header.part = below(2, rng);
  header.segment = below(2, rng) * below(3, rng);
  header.sampled = 1 + below(2, rng);
  return header;
}

// Of one rank. Half of them are messages whose numbers fit those of other ranks, or a cut and its
// resumption; the others have any values.
std::vector<TraceRecord> any_records(Rng& rng) {
  const Rank rank = below(kRanks, rng);
  auto records = testing_trace::random_records(rng, rank, rng() % 4);
  auto time = static_cast<std::uint64_t>(any_time(rng));  // it may pass the last one
  for (TraceRecord& record : records) {
    if (rng() % 2 == 0) continue;
    constexpr EventKind kKinds[] = {EventKind::sent, EventKind::received, EventKind::cut,
                                    EventKind::resumed};
    record.kind = kKinds[rng() % 4];
    const bool is_message = record.kind == EventKind::sent || record.kind == EventKind::received;
    record.peer = is_message ? below(kRanks, rng) : -1;
    record.sequence = is_message ? 1 + rng() % 3 : 77;
    record.operation = below(2, rng);
    record.time_ns = static_cast<std::int64_t>(time += rng() % 100);
  }
  return records;
}

std::string any_frame(Rng& rng) {
  std::string frame;
  switch (1 + rng() % static_cast<std::uint64_t>(kLastFrameType)) {
    case static_cast<int>(FrameType::header):
      append_header(frame, any_header(rng));
      break;
    case static_cast<int>(FrameType::clock):
      append_clock(frame, {below(3, rng), any_time(rng), any_time(rng), any_time(rng)});
      break;
    case static_cast<int>(FrameType::pulse):
      append_pulse(frame, any_time(rng));
      break;
    case static_cast<int>(FrameType::left_out):
      append_left_out(frame, rng() % 8);
      break;
    case static_cast<int>(FrameType::end):
      append_end(frame);
      break;
    case static_cast<int>(FrameType::settings):
      append_change(frame, {any_time(rng), {{"lr", std::to_string(below(3, rng))}}});
      break;
    default: {
      const auto records = any_records(rng);
      if (records.empty())
        append_pulse(frame, any_time(rng));
      else
        append_records(frame, records);
    }
  }
  return frame.substr(kFrameHeadBytes - 1);
}

void change_byte(std::string& frame, Rng& rng) {
  if (frame.empty()) return;
  constexpr char kBytes[] = {0, 1, 2, 0x7f, static_cast<char>(0x80), static_cast<char>(0xff)};
  char& byte = any_of(frame, rng);
  byte = rng() % 2 == 0 ? kBytes[rng() % sizeof kBytes] : static_cast<char>(rng());
}

void change(Frames& frames, Rng& rng) {
  const auto kind = frames.empty() ? 0 : rng() % 6;
  const auto make = [&rng] { return any_frame(rng); };
  if (!change_entries(frames, kind, make, rng)) change_byte(any_of(frames, rng), rng);
}

Frames frames_of(std::string_view file) {
  Frames frames;
  while (!file.empty()) frames.emplace_back(take_until(kEndOfFrame, file));
  return frames;
}

std::string joined(const Frames& frames) {
  std::string file;
  for (const std::string& frame : frames) file += frame + std::string(kEndOfFrame);
  return file;
}

std::string header_frame(Rng& rng) {
  std::string frame;
  append_header(frame, any_header(rng));
  return frame.substr(kFrameHeadBytes - 1);
}

}  // namespace

std::string mutate_trace_file(std::string_view input, Rng& rng) {
  std::vector<Frames> files;
  while (!input.empty()) {
    const std::string_view file = take_until(kEndOfFile, input);
    if (file.rfind("GVTRACE", 0) != 0) files.push_back(frames_of(file));
  }
  if (files.empty() || (files.size() < kTraceInputFiles && rng() % 8 == 0))
    files.push_back(files.empty() ? Frames{header_frame(rng)} : any_of(files, rng));
  for (auto changes = 1 + rng() % 3; changes > 0; --changes) {
    Frames& frames = any_of(files, rng);
    if (rng() % 8 == 0 && !frames.empty())
      frames.front() = header_frame(rng);
    else
      change(frames, rng);
  }
  std::string mutant;
  for (const Frames& frames : files) {
    if (&frames != &files.front()) mutant += kEndOfFile;
    mutant += joined(frames);
  }
  return mutant;
}

}  // namespace grapevine::fuzzing
