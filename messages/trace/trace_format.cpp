#include "messages/trace/trace_format.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include <nlohmann/json.hpp>

#include "messages/trace/wrapping.hpp"

namespace grapevine {
namespace {

constexpr char kMagic[8] = {'G', 'V', 'T', 'R', 'A', 'C', 'E', '\0'};

// ---- integers ----

void put_u32(std::string& out, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

std::uint32_t take_u32(const char* in) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(in[i])) << (8 * i);
  return value;
}

// Seven bits a byte, the lowest first; the top bit: more follow.
void put(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

// Small magnitudes become small numbers: 0, -1, 1, -2, …
void put_signed(std::string& out, std::int64_t value) {
  put(out, (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
}

// Reads until the bytes end or make no sense; then ok() is false and all else is 0.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  std::uint64_t whole() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ >= bytes_.size()) return fail();
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return fail();
  }
  std::int64_t number() {
    const std::uint64_t bits = whole();
    return static_cast<std::int64_t>(bits >> 1) ^ -static_cast<std::int64_t>(bits & 1);
  }
  template <class Int>
  Int narrow() {
    const std::int64_t value = number();
    if (value < std::numeric_limits<Int>::min() || value > std::numeric_limits<Int>::max())
      return static_cast<Int>(fail());
    return static_cast<Int>(value);
  }
  std::uint8_t byte(std::uint8_t least, std::uint8_t most) {
    const std::uint8_t value =
        at_ < bytes_.size() ? static_cast<std::uint8_t>(bytes_[at_++]) : std::uint8_t{0xff};
    return value >= least && value <= most ? value : static_cast<std::uint8_t>(fail());
  }

  bool ok() const { return ok_; }
  std::size_t left() const { return bytes_.size() - at_; }
  std::uint64_t fail() {
    ok_ = false;
    at_ = bytes_.size();
    return 0;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

// ---- frames ----

std::uint32_t checksum(FrameType type, std::string_view body) {
  const auto first = static_cast<Bytef>(type);
  const uLong crc = crc32(crc32(0, nullptr, 0), &first, 1);
  return static_cast<std::uint32_t>(
      crc32(crc, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())));
}

// Appends the body by `write(out)`, and the head in front of it.
template <class Write>
void append_frame(std::string& out, FrameType type, Write write) {
  const std::size_t at = out.size();
  out.append(kFrameHeadBytes, '\0');
  write(out);
  const std::string_view body = std::string_view(out).substr(at + kFrameHeadBytes);
  std::string head;
  put_u32(head, static_cast<std::uint32_t>(body.size()));
  put_u32(head, checksum(type, body));
  head.push_back(static_cast<char>(type));
  out.replace(at, kFrameHeadBytes, head);
}

Error damaged(const char* what) { return {Errc::protocol, std::string("damaged ") + what}; }

// ---- records ----

constexpr std::uint64_t kMostMembersOfFrame = 1 << 24;

// Which fields differ from what they usually are; the order in which they follow.
constexpr std::uint64_t kPeer = 1 << 0;
constexpr std::uint64_t kStep = 1 << 1;
constexpr std::uint64_t kOrigin = 1 << 2;
constexpr std::uint64_t kOriginStep = 1 << 3;
constexpr std::uint64_t kVersion = 1 << 4;
constexpr std::uint64_t kSequence = 1 << 5;
constexpr std::uint64_t kStaleness = 1 << 6;
constexpr std::uint64_t kBytes = 1 << 7;
constexpr std::uint64_t kPayload = 1 << 8;
constexpr std::uint64_t kOperation = 1 << 9;
constexpr std::uint64_t kRound = 1 << 10;
constexpr std::uint64_t kIndex = 1 << 11;
constexpr std::uint64_t kDuration = 1 << 12;
constexpr std::uint64_t kHop = 1 << 13;
constexpr std::uint64_t kView = 1 << 14;
constexpr std::uint64_t kMembers = 1 << 15;

// Of the records before, in the same frame: what the next one is written as a difference to.
struct Previous {
  std::int64_t time_ns = 0;
  Step step = 0;
  std::int64_t sequence = 0;
  std::int64_t operation = -1;
  std::uint32_t view = 0;

  void follow(const TraceRecord& record) {
    time_ns = record.time_ns;
    step = record.step;
    if (record.sequence != 0) sequence = static_cast<std::int64_t>(record.sequence);
    if (record.operation != -1) operation = record.operation;
    view = record.view;
  }
};

std::uint64_t fields_of(const TraceRecord& r, const Previous& last) {
  std::uint64_t fields = 0;
  const auto mark = [&fields](bool present, std::uint64_t field) {
    if (present) fields |= field;
  };
  mark(r.peer != -1, kPeer);
  mark(r.step != last.step, kStep);
  mark(r.origin != r.rank, kOrigin);
  mark(r.origin_step != r.step, kOriginStep);
  mark(r.version != r.origin_step, kVersion);
  mark(r.sequence != 0, kSequence);
  mark(r.staleness != 0, kStaleness);
  mark(r.bytes != 0, kBytes);
  mark(r.payload != PayloadKind::none, kPayload);
  mark(r.operation != -1, kOperation);
  mark(r.round != -1, kRound);
  mark(r.index != -1, kIndex);
  mark(r.duration_ns != 0, kDuration);
  mark(r.hop != 0, kHop);
  mark(r.view != last.view, kView);
  mark(!r.members.empty(), kMembers);
  return fields;
}

// Runs of ranks: how many, and of each the gap to the one before it and its length.
void put_members(std::string& out, const std::vector<Rank>& members) {
  std::vector<std::pair<Rank, std::uint64_t>> runs;
  for (const Rank rank : members)
    if (runs.empty() || rank != runs.back().first + static_cast<Rank>(runs.back().second))
      runs.emplace_back(rank, 1);
    else
      ++runs.back().second;
  put(out, runs.size());
  Rank end = 0;
  for (const auto& [first, length] : runs) {
    put_signed(out, wrapped_difference(first, end));
    put(out, length);
    end = first + static_cast<Rank>(length);
  }
}

// What the records of a frame may have.
struct MembersLimit {
  Rank ranks = 0;          // members are below
  std::uint64_t room = 0;  // for members of the records to come
};

// A few bytes may stand for a long run: more members than the limit allows are damage.
void take_members(Cursor& in, MembersLimit& limit, std::vector<Rank>& members) {
  Rank end = 0;
  for (std::uint64_t runs = in.whole(); runs > 0 && in.ok(); --runs) {
    const std::int64_t first = std::int64_t{end} + in.narrow<Rank>();
    const std::uint64_t length = in.whole();
    if (first < end || first > limit.ranks || length == 0 || length > limit.room ||
        length > static_cast<std::uint64_t>(limit.ranks - first)) {
      in.fail();
      return;
    }
    limit.room -= length;
    members.resize(members.size() + length);
    std::iota(members.end() - static_cast<std::ptrdiff_t>(length), members.end(),
              static_cast<Rank>(first));
    end = static_cast<Rank>(first) + static_cast<Rank>(length);
  }
}

void put_record(std::string& out, const TraceRecord& r, const Previous& last) {
  const std::uint64_t fields = fields_of(r, last);
  out.push_back(static_cast<char>(r.kind));
  put(out, fields);
  put_signed(out, wrapped_difference(r.time_ns, last.time_ns));
  if (fields & kPeer) put_signed(out, r.peer);
  if (fields & kStep) put_signed(out, wrapped_difference(r.step, last.step));
  if (fields & kOrigin) put_signed(out, r.origin);
  if (fields & kOriginStep) put_signed(out, wrapped_difference(r.origin_step, r.step));
  if (fields & kVersion) put_signed(out, wrapped_difference(r.version, r.origin_step));
  if (fields & kSequence)
    put_signed(out, wrapped_difference(static_cast<std::int64_t>(r.sequence), last.sequence));
  if (fields & kStaleness) put_signed(out, r.staleness);
  if (fields & kBytes) put(out, r.bytes);
  if (fields & kPayload) out.push_back(static_cast<char>(r.payload));
  if (fields & kOperation) put_signed(out, wrapped_difference(r.operation, last.operation));
  if (fields & kRound) put_signed(out, r.round);
  if (fields & kIndex) put_signed(out, r.index);
  if (fields & kDuration) put_signed(out, r.duration_ns);
  if (fields & kHop) put(out, r.hop);
  if (fields & kView) put_signed(out, std::int64_t{r.view} - last.view);
  if (fields & kMembers) put_members(out, r.members);
}

void take_record(Cursor& in, const Previous& last, MembersLimit& limit, TraceRecord& r) {
  r.kind = static_cast<EventKind>(in.byte(1, kLastEventKind));
  const std::uint64_t fields = in.whole();
  if (fields >= 2 * kMembers) in.fail();
  r.time_ns = wrapped_sum(last.time_ns, in.number());
  r.peer = fields & kPeer ? in.narrow<Rank>() : -1;
  r.step = fields & kStep ? wrapped_sum(last.step, in.number()) : last.step;
  r.origin = fields & kOrigin ? in.narrow<Rank>() : r.rank;
  r.origin_step = fields & kOriginStep ? wrapped_sum(r.step, in.number()) : r.step;
  r.version = fields & kVersion ? wrapped_sum(r.origin_step, in.number()) : r.origin_step;
  r.sequence =
      fields & kSequence ? static_cast<std::uint64_t>(wrapped_sum(last.sequence, in.number())) : 0;
  r.staleness = fields & kStaleness ? in.number() : 0;
  r.bytes = fields & kBytes ? in.whole() : 0;
  r.payload = fields & kPayload ? static_cast<PayloadKind>(in.byte(1, kLastPayloadKind))
                                : PayloadKind::none;
  r.operation = fields & kOperation ? wrapped_sum(last.operation, in.number()) : -1;
  r.round = fields & kRound ? in.narrow<std::int32_t>() : -1;
  r.index = fields & kIndex ? in.narrow<std::int32_t>() : -1;
  r.duration_ns = fields & kDuration ? in.number() : 0;
  r.hop = fields & kHop ? static_cast<std::uint16_t>(in.whole()) : std::uint16_t{0};
  r.view =
      fields & kView ? static_cast<std::uint32_t>(wrapped_sum(last.view, in.number())) : last.view;
  r.members.clear();
  if (fields & kMembers) take_members(in, limit, r.members);
}

// Fails where the records cannot be in the bytes that follow.
RecordsHead take_records_head(Cursor& in) {
  constexpr std::size_t kLeastRecordBytes = 3;  // kind, fields, time
  RecordsHead head;
  head.rank = in.narrow<Rank>();
  head.first_ns = in.number();
  head.count = in.whole();
  if (head.rank < 0 || head.count > in.left() / kLeastRecordBytes) in.fail();
  return head;
}

// False: it is no whole number, or beyond the range of `number`.
template <class Int>
bool take_whole(const nlohmann::json& value, Int& number) {
  if (!value.is_number_integer()) return false;
  value.get_to(number);
  return value == number;
}

bool is_mark(const TraceRecord& record) {
  return record.kind == EventKind::cut || record.kind == EventKind::resumed;
}

}  // namespace

std::string trace_magic() {
  std::string magic(kMagic, sizeof kMagic);
  put_u32(magic, kTraceVersion);
  return magic;
}

std::string wrong_magic(std::string_view bytes) {
  if (bytes.size() < kTraceMagicBytes) return "it ends before its header";
  if (bytes.substr(0, sizeof kMagic) != std::string_view(kMagic, sizeof kMagic))
    return "it is not a Grapevine trace";
  const std::uint32_t version = take_u32(bytes.data() + sizeof kMagic);
  if (version == kTraceVersion) return "";
  return "it has format " + std::to_string(version) + ", this program reads format " +
         std::to_string(kTraceVersion);
}

void append_header(std::string& out, const TraceHeader& h) {
  const nlohmann::json json = {{"run", h.run},
                               {"process", h.process},
                               {"processes", h.processes},
                               {"ranks", h.ranks},
                               {"workers", h.workers},
                               {"servers", h.servers},
                               {"spare", h.spare},
                               {"host", h.host},
                               {"boot", h.boot},
                               {"pid", h.pid},
                               {"zero_monotonic_ns", h.zero_monotonic_ns},
                               {"zero_realtime_ns", h.zero_realtime_ns},
                               {"part", h.part},
                               {"segment", h.segment},
                               {"sampled", h.sampled},
                               {"version", h.version},
                               {"wiring", h.wiring}};
  // A host's name may hold any bytes.
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  append_frame(out, FrameType::header, [&](std::string& body) { body += text; });
}

void append_records(std::string& out, const std::vector<TraceRecord>& records) {
  if (records.empty()) return;
  const bool marked = std::any_of(records.begin(), records.end(), &is_mark);
  append_frame(out, marked ? FrameType::marked : FrameType::records, [&](std::string& body) {
    put_signed(body, records.front().rank);
    put_signed(body, records.front().time_ns);
    put(body, records.size());
    Previous last;
    last.time_ns = records.front().time_ns;
    for (const TraceRecord& record : records) {
      put_record(body, record, last);
      last.follow(record);
    }
  });
}

void append_clock(std::string& out, const ClockSample& sample) {
  append_frame(out, FrameType::clock, [&](std::string& body) {
    put_signed(body, sample.process);
    put_signed(body, sample.sent_ns);
    put_signed(body, sample.remote_ns);
    put_signed(body, sample.received_ns);
    if (sample.zero_ns) put_signed(body, *sample.zero_ns);
  });
}

void append_pulse(std::string& out, std::int64_t time_ns) {
  append_frame(out, FrameType::pulse, [&](std::string& body) { put_signed(body, time_ns); });
}

void append_left_out(std::string& out, std::uint64_t records) {
  append_frame(out, FrameType::left_out, [&](std::string& body) { put(body, records); });
}

void append_change(std::string& out, const SettingsChange& change) {
  const nlohmann::json json = {{"time_ns", change.time_ns}, {"settings", change.settings}};
  // A value may hold any bytes.
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  append_frame(out, FrameType::settings, [&](std::string& body) { body += text; });
}

void append_end(std::string& out) {
  append_frame(out, FrameType::end, [](std::string&) {});
}

std::optional<FrameHead> decode_frame_head(std::string_view bytes) {
  FrameHead head;
  head.length = take_u32(bytes.data());
  head.crc = take_u32(bytes.data() + 4);
  const auto type = static_cast<std::uint8_t>(bytes[8]);
  if (type < static_cast<std::uint8_t>(FrameType::header) ||
      type > static_cast<std::uint8_t>(kLastFrameType) || head.length > kMostFrameBytes)
    return std::nullopt;
  head.type = static_cast<FrameType>(type);
  return head;
}

bool is_intact(const FrameHead& head, std::string_view body) {
  return body.size() == head.length && checksum(head.type, body) == head.crc;
}

Expected<RecordsHead> decode_records_head(std::string_view body) {
  Cursor in(body);
  const RecordsHead head = take_records_head(in);
  if (!in.ok()) return damaged("records");
  return head;
}

Expected<void> decode_records(std::string_view body, std::vector<TraceRecord>& records,
                              std::int32_t ranks) {
  Cursor in(body);
  const RecordsHead head = take_records_head(in);
  if (!in.ok()) return damaged("records");
  records.resize(head.count);
  Previous last;
  last.time_ns = head.first_ns;
  MembersLimit limit{ranks, kMostMembersOfFrame};
  for (TraceRecord& record : records) {
    record.rank = head.rank;
    take_record(in, last, limit, record);
    if (!in.ok()) return damaged("records");
    last.follow(record);
  }
  if (in.left() > 0) return damaged("records");
  return {};
}

Expected<TraceHeader> decode_header(std::string_view body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  if (!json.is_object()) return damaged("header");
  TraceHeader h;
  bool whole = true;
  const auto take = [&](const char* key, auto& number) {
    whole = whole && take_whole(json.at(key), number);
  };
  try {
    take("run", h.run);
    take("process", h.process);
    take("processes", h.processes);
    for (const auto& rank : json.at("ranks").get_ref<const nlohmann::json::array_t&>())
      whole = whole && take_whole(rank, h.ranks.emplace_back());
    take("workers", h.workers);
    take("servers", h.servers);
    if (json.contains("spare")) take("spare", h.spare);
    json.at("host").get_to(h.host);
    json.at("boot").get_to(h.boot);
    take("pid", h.pid);
    take("zero_monotonic_ns", h.zero_monotonic_ns);
    take("zero_realtime_ns", h.zero_realtime_ns);
    take("part", h.part);
    take("segment", h.segment);
    take("sampled", h.sampled);
    json.at("version").get_to(h.version);
    json.at("wiring").get_to(h.wiring);
  } catch (const nlohmann::json::exception&) {
    return damaged("header");
  }
  const bool sane =
      whole && h.process >= 0 && h.processes > h.process && h.processes <= kMostTraceRanks &&
      h.workers >= 0 && h.workers <= kMostTraceRanks && h.servers >= 0 &&
      h.servers <= kMostTraceRanks - h.workers && h.spare >= 0 &&
      h.spare <= kMostTraceRanks - h.workers - h.servers && h.part >= 0 && h.segment >= 0 &&
      h.sampled >= 1 && std::all_of(h.ranks.begin(), h.ranks.end(), [&h](Rank rank) {
        return rank >= 0 && rank < h.workers + h.servers;
      });
  if (!sane) return damaged("header");
  return h;
}

Expected<ClockSample> decode_clock(std::string_view body) {
  Cursor in(body);
  ClockSample sample;
  sample.process = in.narrow<std::int32_t>();
  sample.sent_ns = in.number();
  sample.remote_ns = in.number();
  sample.received_ns = in.number();
  if (in.left() > 0) sample.zero_ns = in.number();
  if (!in.ok()) return damaged("clock sample");
  return sample;
}

Expected<std::int64_t> decode_pulse(std::string_view body) {
  Cursor in(body);
  const std::int64_t time_ns = in.number();
  if (!in.ok()) return damaged("pulse");
  return time_ns;
}

Expected<std::uint64_t> decode_left_out(std::string_view body) {
  Cursor in(body);
  const std::uint64_t records = in.whole();
  if (!in.ok()) return damaged("number of records left out");
  return records;
}

Expected<SettingsChange> decode_change(std::string_view body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  if (!json.is_object()) return damaged("change of settings");
  SettingsChange change;
  try {
    if (!take_whole(json.at("time_ns"), change.time_ns)) return damaged("change of settings");
    json.at("settings").get_to(change.settings);
  } catch (const nlohmann::json::exception&) {
    return damaged("change of settings");
  }
  return change;
}

}  // namespace grapevine
