#include "messages/trace/trace_format.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "tests/messages/trace/random_records.hpp"

namespace grapevine {
namespace trace_format_test {

using testing_trace::random_records;
using testing_trace::Rng;

// The body of the only frame in `bytes`.
std::string body_of(const std::string& bytes, FrameType type) {
  const auto head = decode_frame_head(bytes);
  EXPECT_TRUE(head.has_value());
  if (!head) return "";
  EXPECT_EQ(head->type, type);
  std::string body = bytes.substr(kFrameHeadBytes);
  EXPECT_TRUE(is_intact(*head, body));
  return body;
}

TEST(TraceFormat, RecordsSurviveARoundTrip) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const Rank rank = seed % 2 == 0 ? 3 : std::numeric_limits<Rank>::max();
    auto records = random_records(rng, rank, 1 + rng() % 40);
    for (TraceRecord& record : records)
      if (record.kind == EventKind::cut || record.kind == EventKind::resumed)
        record.kind = EventKind::sent;
    std::string bytes;
    append_records(bytes, records);
    const std::string body = body_of(bytes, FrameType::records);
    const auto head = decode_records_head(body);
    ASSERT_TRUE(head.ok());
    EXPECT_EQ(head->rank, rank);
    EXPECT_EQ(head->first_ns, records.front().time_ns);
    EXPECT_EQ(head->count, records.size());
    std::vector<TraceRecord> again;
    ASSERT_TRUE(decode_records(body, again).ok());
    ASSERT_EQ(again.size(), records.size());
    for (std::size_t i = 0; i < records.size(); ++i) EXPECT_TRUE(again[i] == records[i]) << i;
  }
}

TEST(TraceFormat, FramesWithACutAreMarked) {
  for (const EventKind kind : {EventKind::cut, EventKind::resumed}) {
    std::string bytes;
    std::vector<TraceRecord> records(3);
    records[1].kind = kind;
    append_records(bytes, records);
    body_of(bytes, FrameType::marked);
  }
}

TEST(TraceFormat, UsualRecordsAreShort) {
  std::vector<TraceRecord> records;
  for (int i = 0; i < 512; ++i) {
    TraceRecord record;
    record.rank = record.origin = 700;
    record.time_ns = 1000000000LL + 100000 * i;
    record.kind = EventKind::sent;
    record.step = record.origin_step = record.version = 100000 + i;
    record.peer = 701;
    record.sequence = static_cast<std::uint64_t>(200000 + i);
    record.payload = PayloadKind::share;
    record.operation = 100000 + i;
    record.bytes = 100000;
    records.push_back(record);
  }
  std::string bytes;
  append_records(bytes, records);
  EXPECT_LT(bytes.size(), 18 * records.size());
}

TEST(TraceFormat, OtherFramesSurviveARoundTrip) {
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40,
        std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    std::string clock, pulse, left_out, end;
    append_clock(clock, {7, value, value, value});
    const auto sample = decode_clock(body_of(clock, FrameType::clock));
    ASSERT_TRUE(sample.ok());
    EXPECT_EQ(sample->process, 7);
    EXPECT_EQ(sample->sent_ns, value);
    EXPECT_EQ(sample->remote_ns, value);
    EXPECT_EQ(sample->received_ns, value);
    EXPECT_EQ(sample->zero_ns, std::nullopt) << "as in traces of earlier versions";
    append_clock(clock = "", {7, value, value, value, value});
    EXPECT_EQ(decode_clock(body_of(clock, FrameType::clock))->zero_ns, value);
    append_pulse(pulse, value);
    EXPECT_EQ(*decode_pulse(body_of(pulse, FrameType::pulse)), value);
    append_left_out(left_out, static_cast<std::uint64_t>(value));
    EXPECT_EQ(*decode_left_out(body_of(left_out, FrameType::left_out)),
              static_cast<std::uint64_t>(value));
    const SettingsChange change{value, {{"algorithm", "gtopk"}, {"wiring.density", "0.1"}}};
    std::string settings;
    append_change(settings, change);
    EXPECT_EQ(*decode_change(body_of(settings, FrameType::settings)), change);
    append_end(end);
    EXPECT_EQ(body_of(end, FrameType::end), "");
  }
}

TraceHeader some_header() {
  TraceHeader header;
  header.process = 2;
  header.processes = 5;
  header.ranks = {4, 5, 9};
  header.workers = 8;
  header.servers = 2;
  header.host = "a\xff host";
  header.boot = "1234";
  header.pid = 99;
  header.zero_monotonic_ns = -5;
  header.zero_realtime_ns = 1700000000000000000;
  header.part = 1;
  header.segment = 3;
  header.sampled = 10;
  header.version = "0.1.0";
  header.wiring = {{"exchange", "gossip"}, {"peers", "1"}};
  return header;
}

TEST(TraceFormat, HeadersSurviveARoundTrip) {
  const TraceHeader header = some_header();
  std::string bytes;
  append_header(bytes, header);
  const auto again = decode_header(body_of(bytes, FrameType::header));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->process, header.process);
  EXPECT_EQ(again->processes, header.processes);
  EXPECT_EQ(again->ranks, header.ranks);
  EXPECT_EQ(again->workers, header.workers);
  EXPECT_EQ(again->servers, header.servers);
  EXPECT_NE(again->host.find(" host"), std::string::npos) << "bytes that are no text are replaced";
  EXPECT_EQ(again->boot, header.boot);
  EXPECT_EQ(again->pid, header.pid);
  EXPECT_EQ(again->zero_monotonic_ns, header.zero_monotonic_ns);
  EXPECT_EQ(again->zero_realtime_ns, header.zero_realtime_ns);
  EXPECT_EQ(again->part, header.part);
  EXPECT_EQ(again->segment, header.segment);
  EXPECT_EQ(again->sampled, header.sampled);
  EXPECT_EQ(again->version, header.version);
  EXPECT_EQ(again->wiring, header.wiring);
}

TEST(TraceFormat, HeadersThatMakeNoSenseAreDamage) {
  const auto damage = [](auto change) {
    TraceHeader header = some_header();
    change(header);
    std::string bytes;
    append_header(bytes, header);
    return !decode_header(body_of(bytes, FrameType::header)).ok();
  };
  EXPECT_TRUE(damage([](TraceHeader& h) { h.ranks = {10}; })) << "the run has ranks 0 to 9";
  EXPECT_TRUE(damage([](TraceHeader& h) { h.ranks = {-1}; }));
  EXPECT_TRUE(damage([](TraceHeader& h) { h.process = 5; })) << "of 5";
  EXPECT_TRUE(damage([](TraceHeader& h) { h.workers = std::numeric_limits<std::int32_t>::max(); }));
  EXPECT_TRUE(damage([](TraceHeader& h) { h.sampled = 0; }));
  EXPECT_FALSE(damage([](TraceHeader&) {}));
  EXPECT_FALSE(decode_header("{\"process\": 1}").ok());
  EXPECT_FALSE(decode_header("not JSON").ok());
}

TEST(TraceFormat, OtherVersionsAreRefusedByNumber) {
  EXPECT_EQ(wrong_magic(trace_magic()), "");
  std::string older = trace_magic();
  older[8] = 1;
  EXPECT_EQ(wrong_magic(older), "it has format 1, this program reads format 2");
  EXPECT_NE(wrong_magic("GVTR"), "");
  EXPECT_NE(wrong_magic("something else"), "");
}

// What a checksum lets through must not harm either.
TEST(TraceFormat, DecodersTakeAnyBytes) {
  for (std::uint64_t seed = 1; seed <= 20000; ++seed) {
    Rng rng(seed);
    std::string bytes;
    if (seed % 2 == 0) {
      append_records(bytes, random_records(rng, 1, 1 + rng() % 5));
      bytes.erase(0, kFrameHeadBytes);
      for (std::uint64_t flips = 1 + rng() % 3; flips > 0; --flips)
        bytes[rng() % bytes.size()] = static_cast<char>(rng());
      bytes.resize(rng() % (bytes.size() + 1));
    } else {
      bytes.resize(rng() % 40);
      for (char& byte : bytes) byte = static_cast<char>(rng());
    }
    std::vector<TraceRecord> records;
    const auto decoded = decode_records(bytes, records);
    EXPECT_TRUE(!decoded.ok() || records.size() <= bytes.size()) << "seed " << seed;
    for (const TraceRecord& record : records)
      EXPECT_LE(static_cast<std::uint8_t>(record.payload), kLastPayloadKind) << "seed " << seed;
    (void)decode_header(bytes);
    (void)decode_clock(bytes);
    (void)decode_pulse(bytes);
    (void)decode_left_out(bytes);
    if (bytes.size() >= kFrameHeadBytes) (void)decode_frame_head(bytes);
  }
}

// A count that the bytes cannot hold is refused before memory is taken for it.
TEST(TraceFormat, CountsAreBoundedByTheBytes) {
  std::string bytes;
  append_records(bytes, std::vector<TraceRecord>(1));
  std::string body = bytes.substr(kFrameHeadBytes);
  ASSERT_EQ(body[2], 1) << "rank, time, count";
  body.replace(2, 1, std::string(8, '\xff') + '\x7f');
  std::vector<TraceRecord> records;
  EXPECT_FALSE(decode_records(body, records).ok());
  EXPECT_EQ(records.capacity(), 0U);
}

// A run of members takes three bytes, however long it is.
TEST(TraceFormat, MembersAreRanksOfTheRun) {
  std::vector<TraceRecord> records(1), again;
  records[0].members = {0, 1, 2, 5};
  std::string bytes;
  append_records(bytes, records);
  const std::string body = bytes.substr(kFrameHeadBytes);
  EXPECT_TRUE(decode_records(body, again, 6).ok());
  EXPECT_EQ(again[0].members, records[0].members);
  EXPECT_FALSE(decode_records(body, again, 5).ok());
  // Of all records of a frame together, too.
  records.assign(17, TraceRecord());
  records[0].members.resize(kMostTraceRanks);
  std::iota(records[0].members.begin(), records[0].members.end(), 0);
  for (TraceRecord& record : records) record.members = records[0].members;
  bytes.clear();
  append_records(bytes, records);
  EXPECT_LT(bytes.size(), 300U);
  EXPECT_FALSE(decode_records(bytes.substr(kFrameHeadBytes), again).ok());
}

}  // namespace trace_format_test
}  // namespace grapevine
