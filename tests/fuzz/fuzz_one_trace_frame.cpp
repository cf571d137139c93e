#include <string>
#include <string_view>
#include <vector>

#include "messages/trace/trace_format.hpp"
#include "tests/fuzz/fuzz_targets.hpp"
#include "tests/fuzz/scratch_file.hpp"
#include "tests/messages/trace/random_records.hpp"

namespace grapevine {
namespace {

// Of a frame that was appended to an empty text.
std::string_view body_of(const std::string& frame) {
  return std::string_view(frame).substr(kFrameHeadBytes);
}

void check_records(std::string_view body) {
  std::vector<TraceRecord> records, again;
  const auto head = decode_records_head(body);
  // More than the frames of the corpus name; long lists of members would fill the time.
  constexpr std::int32_t kRanks = 1024;
  if (auto decoded = decode_records(body, records, kRanks); !decoded)
    return check_one_line(decoded.error());
  GRAPEVINE_CHECK(head.ok() && head->count == records.size(), "the head counts other records");
  if (records.empty()) return;
  std::string frame;
  append_records(frame, records);
  GRAPEVINE_CHECK(decode_records(body_of(frame), again, kRanks).ok(), "records that were encoded");
  GRAPEVINE_CHECK(again == records, "records decode as others");
}

void check_header(std::string_view body) {
  const auto header = decode_header(body);
  if (!header) return check_one_line(header.error());
  std::string frame, once_more;
  append_header(frame, *header);
  const auto again = decode_header(body_of(frame));
  GRAPEVINE_CHECK(again.ok(), "a header that was encoded is refused");
  append_header(once_more, *again);
  GRAPEVINE_CHECK(frame == once_more, "a header decodes as another");
}

void check_clock(std::string_view body) {
  const auto sample = decode_clock(body);
  if (!sample) return check_one_line(sample.error());
  std::string frame, once_more;
  append_clock(frame, *sample);
  append_clock(once_more, *decode_clock(body_of(frame)));
  GRAPEVINE_CHECK(frame == once_more, "a clock sample decodes as another");
}

void check_change(std::string_view body) {
  const auto change = decode_change(body);
  if (!change) return check_one_line(change.error());
  std::string frame;
  append_change(frame, *change);
  const auto again = decode_change(body_of(frame));
  GRAPEVINE_CHECK(again.ok() && *again == *change, "a change decodes as another");
}

void check_numbers(std::string_view body) {
  std::string frame;
  if (const auto time = decode_pulse(body)) {
    append_pulse(frame, *time);
    GRAPEVINE_CHECK(*decode_pulse(body_of(frame)) == *time, "a pulse decodes as another");
  }
  frame.clear();
  if (const auto records = decode_left_out(body)) {
    append_left_out(frame, *records);
    GRAPEVINE_CHECK(*decode_left_out(body_of(frame)) == *records, "a number decodes as another");
  }
}

void check_head(std::string_view bytes) {
  if (bytes.size() < kFrameHeadBytes) return;
  if (const auto head = decode_frame_head(bytes)) is_intact(*head, bytes.substr(kFrameHeadBytes));
  wrong_magic(bytes);
}

}  // namespace

void fuzz_one_trace_frame(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return;
  const std::string_view body = fuzzing::text_of(data, size).substr(1);
  switch (data[0] % 8) {
    case 0:
      return check_head(body);
    case 1:
      return check_header(body);
    case 2:
      return check_clock(body);
    case 3:
      return check_numbers(body);
    case 7:
      return check_change(body);
    default:
      return check_records(body);
  }
}

}  // namespace grapevine
