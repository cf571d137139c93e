// The bytes of a trace file, format 2 (docs/tracing.md): a magic number, then frames.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/expected.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

inline constexpr std::uint32_t kTraceVersion = 2;
inline constexpr std::size_t kTraceMagicBytes = 12;  // "GVTRACE" 0, u32 version
inline constexpr std::size_t kFrameHeadBytes = 9;    // u32 length of the body, u32 CRC-32, u8 type
inline constexpr std::uint32_t kMostFrameBytes = 64u << 20;
inline constexpr std::int32_t kMostTraceRanks = 1 << 20;  // of a run

// Part of the file format.
enum class FrameType : std::uint8_t {
  header = 1,  // JSON
  records,     // of one rank, in the order of their times
  marked,      // the same, with a cut or a resumption among them
  clock,       // a ClockSample
  pulse,       // the process ran at this time
  left_out,    // records for which there was no room in memory: how many
  end,         // the trace was closed: nothing is missing at its end
  settings     // JSON: a SettingsChange
};
inline constexpr auto kLastFrameType = FrameType::settings;

struct FrameHead {
  FrameType type = FrameType::end;
  std::uint32_t length = 0;  // of the body
  std::uint32_t crc = 0;     // of type and body
};

std::string trace_magic();
// What is wrong with a file that begins like this; nothing: it is a trace of this version.
std::string wrong_magic(std::string_view bytes);

void append_header(std::string& out, const TraceHeader& header);
// REQUIRES: records of one rank.
void append_records(std::string& out, const std::vector<TraceRecord>& records);
void append_clock(std::string& out, const ClockSample& sample);
void append_pulse(std::string& out, std::int64_t time_ns);
void append_left_out(std::string& out, std::uint64_t records);
void append_change(std::string& out, const SettingsChange& change);
void append_end(std::string& out);

// REQUIRES: kFrameHeadBytes bytes. Nothing: they cannot be the head of a frame.
std::optional<FrameHead> decode_frame_head(std::string_view bytes);
bool is_intact(const FrameHead& head, std::string_view body);

// What stands at the beginning of the body of a frame of records.
struct RecordsHead {
  Rank rank = 0;
  std::int64_t first_ns = 0;
  std::uint64_t count = 0;
};
// Errors (protocol) of the decoders: the body is damaged. They allocate nothing for what is not
// there.
Expected<RecordsHead> decode_records_head(std::string_view body);
// `ranks`: of the run; the members of a record are among them.
Expected<void> decode_records(std::string_view body, std::vector<TraceRecord>& records,
                              std::int32_t ranks = kMostTraceRanks);
Expected<TraceHeader> decode_header(std::string_view body);
Expected<ClockSample> decode_clock(std::string_view body);
Expected<std::int64_t> decode_pulse(std::string_view body);
Expected<std::uint64_t> decode_left_out(std::string_view body);
Expected<SettingsChange> decode_change(std::string_view body);

}  // namespace grapevine
