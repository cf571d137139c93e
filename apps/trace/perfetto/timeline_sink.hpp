// TimelineSink: where a timeline of processes, tracks, slices and counters is written to.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "apps/trace/perfetto/message_flows.hpp"
#include "messages/expected.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

enum class TimelineCategory : std::uint8_t { step, wait, compute, exchange, message, model, run };
const char* name_of(TimelineCategory category);

// `id` names it in the whole timeline. Viewers merge processes of one pid and threads of one tid,
// and machines have equal pids: so these are numbers of the timeline, and the true pid is in the
// name.
struct TimelineProcess {
  std::int32_t pid = 0;  // its id as well
  std::string name;
};
struct TimelineTrackName {
  enum class Kind : std::uint8_t { thread, count, bytes };
  std::int64_t id = 0;  // of a thread: its tid
  std::int32_t pid = 0;
  Kind kind = Kind::thread;
  std::string name;
};

// A slice that begins, or an instant.
struct TimelineEvent {
  std::int64_t time_ns = 0;
  TimelineCategory category = TimelineCategory::step;
  std::string_view name;
  bool recurs = true;                   // the name: others have it, too
  const TraceRecord* record = nullptr;  // whose details are shown; null: none
  FlowRole flow = FlowRole::none;       // of the record's message
};

// What of a record is shown as a number or a word beside its name.
enum class DetailName : std::uint8_t {
  step,
  from,
  to,
  payload,
  operation,
  round,
  index,
  bytes,
  staleness,
  version,
  origin,
  origin_step,
  members,
  view,
  checkpoint,
  run
};
const char* name_of(DetailName name);

struct Detail {
  DetailName name = DetailName::step;
  std::int64_t number = 0;
  const char* text = nullptr;  // in place of the number, where it is set
};

class Details {
 public:
  explicit Details(const TraceRecord& record);
  const Detail* begin() const { return details_.data(); }
  const Detail* end() const { return details_.data() + count_; }

 private:
  void add(DetailName name, std::int64_t number) { details_[count_++] = {name, number, nullptr}; }
  void add_place(const TraceRecord& record);
  void add_update(const TraceRecord& record);

  std::array<Detail, 12> details_;  // more than any record has
  std::size_t count_ = 0;
};

// REQUIRES of the caller: processes and tracks are described before they are used, times of a track
// do not decrease and are not negative, slices of a track nest, and all are ended before finish().
// Not thread-safe.
class TimelineSink {
 public:
  virtual ~TimelineSink() = default;
  virtual void describe(const TimelineProcess& process) = 0;
  virtual void describe(const TimelineTrackName& track) = 0;
  virtual void begin(const TimelineTrackName& track, const TimelineEvent& event) = 0;
  virtual void end(const TimelineTrackName& track, std::int64_t time_ns) = 0;
  virtual void instant(const TimelineTrackName& track, const TimelineEvent& event) = 0;
  virtual void count(const TimelineTrackName& track, std::int64_t time_ns, std::int64_t value) = 0;
  // A write has failed: finish() says why, and more events are of no use.
  virtual bool failed() const = 0;
  // The file gets its name. Errors (io) name it.
  virtual Expected<void> finish() = 0;
};

}  // namespace grapevine
