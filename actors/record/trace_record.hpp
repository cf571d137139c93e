// TraceRecord: one line of the message trace, and its file format.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/env.hpp"
#include "messages/expected.hpp"
#include "messages/text/fnv1a.hpp"

namespace grapevine {

struct TraceRecord {
  std::int64_t time_ns = 0;  // since the start of the run
  EventKind kind = EventKind::applied;
  Rank rank = 0;   // where it happened
  Rank peer = -1;  // the other end; -1: none
  Step step = 0;   // of `rank`
  Rank origin = 0;
  Step origin_step = 0;
  std::uint64_t sequence = 0;  // with `origin`: names a message
  std::int64_t staleness = 0;
  std::uint64_t bytes = 0;
};

// File: 16 bytes header ("GVTRACE" 0, u32 version, u32 record size), then records of
// kTraceRecordBytes, little-endian, in the order of the fields above.
constexpr std::uint32_t kTraceVersion = 1;
constexpr std::size_t kTraceRecordBytes = 8 + 1 + 4 + 4 + 8 + 4 + 8 + 8 + 8 + 8;

std::string encode_trace_header();
void append_encoded(std::string& out, const TraceRecord& record);
// Errors name the byte at which the file stops making sense.
Expected<std::vector<TraceRecord>> read_trace_file(const std::string& path);

// FNV-1a over encoded records: equal runs have equal hashes.
class TraceHash {
 public:
  void add(const std::string& encoded);
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = kFnv1aStart;
};

}  // namespace grapevine
