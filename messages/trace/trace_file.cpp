#include "messages/trace/trace_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <regex>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "messages/trace/wrapping.hpp"

namespace grapevine {
namespace {

constexpr std::uint64_t kSegmentsWithinLimit = 8;

// Reads a file from its beginning, a frame at a time.
class FrameReader {
 public:
  FrameReader(std::FILE* file, TraceFileIndex& index)
      : file_(file), bytes_(bytes_of(file)), index_(index) {}

  // The next frame that is whole; false at the end of the file or of its readable part.
  bool next() {
    offset_ += kFrameHeadBytes + head_.length;
    char bytes[kFrameHeadBytes];
    const std::size_t got = std::fread(bytes, 1, sizeof bytes, file_);
    if (got == 0) return false;
    if (got < sizeof bytes) return stop("the last frame is cut off");
    const auto head = decode_frame_head(std::string_view(bytes, sizeof bytes));
    if (!head) return stop("the file is damaged");
    head_ = *head;
    // Before memory is taken for it.
    if (head_.length > bytes_ - std::min(bytes_, body_at()))
      return stop("the last frame is cut off");
    body_.resize(head_.length);
    if (std::fread(body_.data(), 1, body_.size(), file_) < body_.size())
      return stop("the last frame is cut off");
    if (!is_intact(head_, body_)) return stop("the file is damaged");
    return true;
  }

  FrameType type() const { return head_.type; }
  const std::string& body() const { return body_; }
  std::uint64_t body_at() const { return offset_ + kFrameHeadBytes; }
  bool stop(const std::string& why) {
    index_.problem = fmt::format("byte {}: {}, what follows cannot be read", offset_, why);
    return false;
  }

 private:
  static std::uint64_t bytes_of(std::FILE* file) {
    struct stat state {};
    return ::fstat(::fileno(file), &state) == 0 ? static_cast<std::uint64_t>(state.st_size) : 0;
  }

  std::FILE* file_;
  const std::uint64_t bytes_;  // of the file, when it was opened
  TraceFileIndex& index_;
  FrameHead head_;
  std::uint64_t offset_ = kTraceMagicBytes - kFrameHeadBytes;  // the first frame follows the magic
  std::string body_;
};

// Adds up what an index needs to know of each frame.
class Indexer {
 public:
  explicit Indexer(TraceFileIndex& index) : index_(index) {}

  Expected<void> take(const FrameReader& frame) {
    switch (frame.type()) {
      case FrameType::header:
        return {};
      case FrameType::records:
      case FrameType::marked:
        return take_records(frame);
      case FrameType::clock:
        return take_clock(frame);
      case FrameType::pulse:
        return take_pulse(frame);
      case FrameType::left_out:
        return take_left_out(frame);
      case FrameType::end:
        index_.closed = true;
        return {};
      case FrameType::settings:
        return take_change(frame);
    }
    return {};
  }

 private:
  Expected<void> take_records(const FrameReader& frame) {
    auto head = decode_records_head(frame.body());
    if (!head) return head.error();
    if (head->rank >= index_.header.most_ranks())
      return Error{Errc::protocol, "records of a rank that the run does not have"};
    index_.records.push_back({frame.body_at(), static_cast<std::uint32_t>(frame.body().size()),
                              frame.type() == FrameType::marked, *head});
    index_.last_ns = std::max(index_.last_ns, head->first_ns);
    return {};
  }
  Expected<void> take_clock(const FrameReader& frame) {
    const auto sample = decode_clock(frame.body());
    if (!sample) return sample.error();
    index_.clocks.push_back(*sample);
    return {};
  }
  Expected<void> take_pulse(const FrameReader& frame) {
    const auto now = decode_pulse(frame.body());
    if (!now) return now.error();
    if (has_pulse_ && wrapped_difference(*now, pulse_ns_) >= kLeastPauseNs)
      index_.pauses.push_back({pulse_ns_, *now});
    has_pulse_ = true;
    pulse_ns_ = *now;
    index_.last_ns = std::max(index_.last_ns, *now);
    return {};
  }
  Expected<void> take_left_out(const FrameReader& frame) {
    const auto records = decode_left_out(frame.body());
    if (!records) return records.error();
    index_.left_out += *records;
    has_pulse_ = false;  // those that were due before may be among what was left out
    return {};
  }

  Expected<void> take_change(const FrameReader& frame) {
    auto change = decode_change(frame.body());
    if (!change) return change.error();
    index_.changes.push_back(*std::move(change));
    return {};
  }

  TraceFileIndex& index_;
  bool has_pulse_ = false;
  std::int64_t pulse_ns_ = 0;  // of the newest pulse
};

Error cannot_read(const std::string& path, const std::string& why) {
  return bad_input(fmt::format("trace {}: {}; give the folder of a run", path, why));
}

}  // namespace

std::string trace_file_name(std::int32_t process, std::int32_t part, std::int32_t segment) {
  std::string name = fmt::format("process-{:04}", process);
  if (part > 0) name += fmt::format(".{}", part);
  if (segment > 0) name += fmt::format("-{:04}", segment);
  return name + ".gvtrace";
}

std::optional<TraceFileName> read_trace_file_name(const std::string& name) {
  static const std::regex pattern(R"(process-(\d{1,9})(?:\.(\d{1,9}))?(?:-(\d{1,9}))?\.gvtrace)");
  std::smatch match;
  if (!std::regex_match(name, match, pattern)) return std::nullopt;
  const auto number = [&match](std::size_t i) {
    return match[i].matched ? std::stoi(match[i]) : 0;
  };
  return TraceFileName{number(1), number(2), number(3)};
}

std::string name_in_trace(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// ---- writing ----

TraceFileWriter::TraceFileWriter(std::string folder, TraceHeader header, std::uint64_t limit)
    : folder_(std::move(folder)),
      header_(std::move(header)),
      limit_(limit),
      repeated_(limit / kSegmentsWithinLimit / 2) {}

Expected<void> TraceFileWriter::write(std::string_view frames) {
  if (frames.empty()) return {};
  if (!file_ || is_full(frames.size()))
    if (auto begun = begin_segment(); !begun) return begun;
  return append(frames);
}

// At least half of a segment's share is for what it does not repeat, however long that is.
bool TraceFileWriter::is_full(std::size_t more) const {
  if (limit_ == 0) return false;
  const Segment& segment = segments_.back();
  const std::uint64_t share = limit_ / kSegmentsWithinLimit;
  return segment.bytes - segment.repeated + more > share - std::min(segment.repeated, share / 2);
}

Expected<void> TraceFileWriter::begin_segment() {
  if (file_) ++header_.segment;
  file_.reset();
  const bool is_first = segments_.empty() && header_.segment == 0;
  segments_.push_back(
      {folder_ + "/" + trace_file_name(header_.process, header_.part, header_.segment)});
  const std::string path = segments_.back().path;
  const auto give_up = [&](const Error& why) {
    file_.reset();
    std::remove(path.c_str());
    segments_.pop_back();
    return why;
  };
  // A reader of an earlier run's file keeps what it has opened.
  std::remove(path.c_str());
  file_.reset(std::fopen(path.c_str(), "wb"));
  if (!file_) return give_up(failed("open"));
  // A write that fails leaves nothing behind for the next one.
  std::setvbuf(file_.get(), nullptr, _IONBF, 0);
  remove_oldest();
  std::string start = trace_magic();
  append_header(start, header_);
  const std::string repeated = is_first ? "" : repeated_.frames();
  if (auto begun = append(start + repeated); !begun) return give_up(begun.error());
  segments_.back().repeated = repeated.size();
  return {};
}

void TraceFileWriter::remove_oldest() {
  std::uint64_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.bytes;
  while (limit_ > 0 && segments_.size() > 1 && bytes + limit_ / kSegmentsWithinLimit > limit_) {
    bytes -= segments_.front().bytes;
    std::remove(segments_.front().path.c_str());
    segments_.pop_front();
  }
}

// All of it or nothing: half a frame would end the file for its readers.
Expected<void> TraceFileWriter::append(std::string_view bytes) {
  Segment& segment = segments_.back();
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) {
    segment.bytes += bytes.size();
    return {};
  }
  const Error failure = failed("write");
  std::clearerr(file_.get());
  const auto end = static_cast<off_t>(segment.bytes);
  if (::fseeko(file_.get(), end, SEEK_SET) != 0 || ::ftruncate(::fileno(file_.get()), end) != 0)
    return failed("cut back");
  return failure;
}

Expected<void> TraceFileWriter::close() {
  if (!file_) return {};
  std::string end;
  append_end(end);
  auto closed = append(end);
  if (closed && ::fsync(::fileno(file_.get())) != 0) closed = failed("sync");
  file_.reset();
  return closed;
}

Error TraceFileWriter::failed(const char* action) const {
  const int number = errno;
  return {Errc::io,
          fmt::format("cannot {} '{}': {}", action, segments_.back().path, std::strerror(number))};
}

// ---- reading ----

Expected<TraceFileIndex> index_trace_file(const std::string& path) {
  std::error_code none;
  if (std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none))
    return cannot_read(path, "it is no file");
  TraceFileIndex index;
  index.path = path;
  const OpenFile file(std::fopen(path.c_str(), "rb"));
  if (!file) return cannot_read(path, std::strerror(errno));
  char magic[kTraceMagicBytes];
  const std::size_t got = std::fread(magic, 1, sizeof magic, file.get());
  if (const std::string wrong = wrong_magic({magic, got}); !wrong.empty())
    return cannot_read(path, wrong);
  FrameReader frame(file.get(), index);
  if (!frame.next() || frame.type() != FrameType::header)
    return cannot_read(path, "it ends before its header");
  auto header = decode_header(frame.body());
  if (!header) return cannot_read(path, header.error().message);
  index.header = *std::move(header);
  Indexer indexer(index);
  while (frame.next())
    if (auto taken = indexer.take(frame); !taken) {
      frame.stop(taken.error().message);
      break;
    }
  return index;
}

Expected<void> read_frame(std::FILE* file, const RecordsFrame& frame, std::string& body) {
  body.resize(frame.length);
  if (::fseeko(file, static_cast<off_t>(frame.offset), SEEK_SET) != 0 ||
      std::fread(body.data(), 1, body.size(), file) < body.size())
    return Error{Errc::io, "the trace cannot be read any more: it has been removed or replaced"};
  return {};
}

}  // namespace grapevine
