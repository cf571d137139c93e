#include "actors/record/trace_record.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

namespace grapevine {
namespace {

constexpr char kMagic[8] = {'G', 'V', 'T', 'R', 'A', 'C', 'E', '\0'};
constexpr std::size_t kHeaderBytes = 16;

template <class T>
void put(std::string& out, T value) {
  const auto bits = static_cast<std::uint64_t>(value);
  for (std::size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

template <class T>
T take(const char*& in) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bits |= static_cast<std::uint64_t>(static_cast<unsigned char>(*in++)) << (8 * i);
  return static_cast<T>(bits);
}

TraceRecord decode(const char* in) {
  TraceRecord record;
  record.time_ns = take<std::int64_t>(in);
  record.kind = static_cast<EventKind>(take<std::uint8_t>(in));
  record.rank = take<std::int32_t>(in);
  record.peer = take<std::int32_t>(in);
  record.step = take<std::int64_t>(in);
  record.origin = take<std::int32_t>(in);
  record.origin_step = take<std::int64_t>(in);
  record.sequence = take<std::uint64_t>(in);
  record.staleness = take<std::int64_t>(in);
  record.bytes = take<std::uint64_t>(in);
  return record;
}

}  // namespace

std::string encode_trace_header() {
  std::string header(kMagic, sizeof(kMagic));
  put(header, kTraceVersion);
  put(header, static_cast<std::uint32_t>(kTraceRecordBytes));
  return header;
}

void append_encoded(std::string& out, const TraceRecord& record) {
  put(out, record.time_ns);
  put(out, static_cast<std::uint8_t>(record.kind));
  put(out, record.rank);
  put(out, record.peer);
  put(out, record.step);
  put(out, record.origin);
  put(out, record.origin_step);
  put(out, record.sequence);
  put(out, record.staleness);
  put(out, record.bytes);
}

Expected<std::vector<TraceRecord>> read_trace_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{Errc::bad_input, path + ": cannot be read: give the folder of a run"};
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.compare(0, kHeaderBytes, encode_trace_header()) != 0)
    return bad_input(fmt::format("{}: byte 0: expected a Grapevine trace header, version {}", path,
                                 kTraceVersion));
  const std::size_t body = bytes.size() - kHeaderBytes;
  if (body % kTraceRecordBytes != 0)
    return bad_input(fmt::format("{}: byte {}: the last record is cut off: expected {} bytes", path,
                                 bytes.size() - body % kTraceRecordBytes, kTraceRecordBytes));
  std::vector<TraceRecord> records;
  records.reserve(body / kTraceRecordBytes);
  for (std::size_t at = kHeaderBytes; at < bytes.size(); at += kTraceRecordBytes)
    records.push_back(decode(bytes.data() + at));
  return records;
}

void TraceHash::add(const std::string& encoded) { hash_ = fnv1a(encoded, hash_); }

}  // namespace grapevine
