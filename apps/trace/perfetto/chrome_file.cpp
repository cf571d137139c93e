#include "apps/trace/perfetto/chrome_file.hpp"

#include <cstdint>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "actors/record/files.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kJsonBuffer = std::size_t{1} << 20;  // bytes

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class ChromeFile : public TimelineSink {
 public:
  explicit ChromeFile(AtomicFile file) : file_(std::move(file)) {}

  void describe(const TimelineProcess& process) override {
    next();
    append(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", process.pid,
           json_text(process.name));
  }
  // A counter has no description: its events have its name.
  void describe(const TimelineTrackName& track) override {
    if (track.kind != TimelineTrackName::Kind::thread) return;
    next();
    append(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", track.pid,
           track.id, json_text(track.name));
  }

  void begin(const TimelineTrackName& track, const TimelineEvent& event) override {
    start('B', track, event.time_ns);
    append(R"(,"cat":"{}","name":{},"args":{{)", name_of(event.category), json_text(event.name));
    if (event.record != nullptr) append_details(*event.record);
    append("}}}}");
    if (event.flow != FlowRole::none) append_flow(track, event);
  }
  void end(const TimelineTrackName& track, std::int64_t time_ns) override {
    start('E', track, time_ns);
    append("}}");
  }
  void instant(const TimelineTrackName& track, const TimelineEvent& event) override {
    begin(track, event);
    end(track, event.time_ns);
  }
  void count(const TimelineTrackName& track, std::int64_t time_ns, std::int64_t value) override {
    next();
    append(R"({{"ph":"C","pid":{},"ts":{},"name":{},"args":{{"value":{}}}}})", track.pid,
           microseconds(time_ns), json_text(track.name), value);
  }

  bool failed() const override { return failed_; }

  Expected<void> finish() override {
    if (first_) next();
    append("\n]}}\n");
    flush();
    return file_.commit();
  }

 private:
  template <class... Values>
  void append(fmt::format_string<Values...> text, Values&&... values) {
    fmt::format_to(std::back_inserter(buffer_), text, std::forward<Values>(values)...);
  }

  static std::string microseconds(std::int64_t ns) {
    return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
  }

  // Where the next event begins.
  void next() {
    if (buffer_.size() >= kJsonBuffer) flush();
    append("{}\n",
           std::exchange(first_, false) ? R"({"displayTimeUnit":"ns","traceEvents":[)" : ",");
  }

  void start(char phase, const TimelineTrackName& track, std::int64_t time_ns) {
    next();
    append(R"({{"ph":"{}","pid":{},"tid":{},"ts":{})", phase, track.pid, track.id,
           microseconds(time_ns));
  }

  void append_details(const TraceRecord& record) {
    const char* separator = "";
    for (const Detail& detail : Details(record)) {
      append(R"({}"{}":)", std::exchange(separator, ","), name_of(detail.name));
      if (detail.text == nullptr)
        append("{}", detail.number);
      else
        append("{}", json_text(detail.text));
    }
  }

  // Bound to the slice that has just begun.
  void append_flow(const TimelineTrackName& track, const TimelineEvent& event) {
    const MessageName message = message_of(*event.record);
    const char phase = event.flow == FlowRole::begin  ? 's'
                       : event.flow == FlowRole::step ? 't'
                                                      : 'f';
    start(phase, track, event.time_ns);
    append(R"(,"cat":"message","name":"message","id":"{}:{}"{}}})", message.sender,
           message.sequence, event.flow == FlowRole::end ? R"(,"bp":"e")" : "");
  }

  void flush() {
    file_.stream().write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    if (!file_.stream()) failed_ = true;
    buffer_.clear();
  }

  AtomicFile file_;
  std::string buffer_;
  bool first_ = true, failed_ = false;
};

}  // namespace

Expected<std::unique_ptr<TimelineSink>> make_chrome_file(const std::string& path) {
  auto file = AtomicFile::create(path);
  if (!file) return file.error();
  return std::unique_ptr<TimelineSink>(std::make_unique<ChromeFile>(*std::move(file)));
}

}  // namespace grapevine
