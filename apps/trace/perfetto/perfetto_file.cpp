#include "apps/trace/perfetto/perfetto_file.hpp"

#include <perfetto_event.pb.h>

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "actors/record/files.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kPacketBuffer = std::size_t{1} << 20;  // bytes
constexpr char kPacketTag = 0x0a;                            // Trace.packet = 1, with a length
constexpr std::uint32_t kSequence = 1;
// Perfetto's TracePacket.SequenceFlags: names from before this packet are void; it uses names.
constexpr std::uint32_t kStateCleared = 1, kNeedsState = 2;
constexpr int kBitsOfSequence = 40;  // of a message, in the id of its flow

// Seven bits a byte, the lowest first.
void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) out.push_back(static_cast<char>(value | 0x80U));
  out.push_back(static_cast<char>(value));
}

std::uint64_t flow_id(const TraceRecord& record) {
  const MessageName message = message_of(record);
  return (static_cast<std::uint64_t>(message.sender) + 1) << kBitsOfSequence | message.sequence;
}

// Names of one kind, numbered from 1.
class InternedNames {
 public:
  struct Entry {
    std::uint64_t iid = 0;
    bool is_new = false;
  };
  Entry find(std::string_view name) {
    scratch_ = name;
    const auto [found, is_new] = names_.try_emplace(scratch_, names_.size() + 1);
    return {found->second, is_new};
  }

 private:
  std::unordered_map<std::string, std::uint64_t> names_;
  std::string scratch_;
};

class PerfettoFile : public TimelineSink {
 public:
  explicit PerfettoFile(AtomicFile file) : file_(std::move(file)) {}

  void describe(const TimelineProcess& process) override {
    perfetto::TrackDescriptor& track = *start().mutable_track_descriptor();
    track.set_uuid(static_cast<std::uint64_t>(process.pid));
    track.mutable_process()->set_pid(process.pid);
    track.mutable_process()->set_process_name(process.name);
    write();
  }

  void describe(const TimelineTrackName& name) override {
    perfetto::TrackDescriptor& track = *start().mutable_track_descriptor();
    track.set_uuid(static_cast<std::uint64_t>(name.id));
    track.set_parent_uuid(static_cast<std::uint64_t>(name.pid));
    track.set_name(name.name);
    if (name.kind == TimelineTrackName::Kind::thread) {
      track.mutable_thread()->set_pid(name.pid);
      track.mutable_thread()->set_tid(name.id);
      track.mutable_thread()->set_thread_name(name.name);
    } else {
      using perfetto::CounterDescriptor;
      track.mutable_counter()->set_unit(name.kind == TimelineTrackName::Kind::bytes
                                            ? CounterDescriptor::UNIT_SIZE_BYTES
                                            : CounterDescriptor::UNIT_COUNT);
    }
    write();
  }

  void begin(const TimelineTrackName& track, const TimelineEvent& event) override {
    fill(start(track, event.time_ns, perfetto::TrackEvent::TYPE_SLICE_BEGIN), event);
    write();
  }
  void end(const TimelineTrackName& track, std::int64_t time_ns) override {
    start(track, time_ns, perfetto::TrackEvent::TYPE_SLICE_END);
    write();
  }
  void instant(const TimelineTrackName& track, const TimelineEvent& event) override {
    fill(start(track, event.time_ns, perfetto::TrackEvent::TYPE_INSTANT), event);
    write();
  }
  void count(const TimelineTrackName& track, std::int64_t time_ns, std::int64_t value) override {
    start(track, time_ns, perfetto::TrackEvent::TYPE_COUNTER).set_counter_value(value);
    write();
  }

  bool failed() const override { return failed_; }

  Expected<void> finish() override {
    flush();
    return file_.commit();
  }

 private:
  perfetto::TracePacket& start() {
    packet_.Clear();
    packet_.set_trusted_packet_sequence_id(kSequence);
    packet_.set_sequence_flags(std::exchange(first_, false) ? kStateCleared : kNeedsState);
    if ((packet_.sequence_flags() & kStateCleared) != 0) packet_.set_first_packet_on_sequence(true);
    return packet_;
  }

  perfetto::TrackEvent& start(const TimelineTrackName& track, std::int64_t time_ns,
                              perfetto::TrackEvent::Type type) {
    start().set_timestamp(static_cast<std::uint64_t>(time_ns));
    perfetto::TrackEvent& event = *packet_.mutable_track_event();
    event.set_type(type);
    event.set_track_uuid(static_cast<std::uint64_t>(track.id));
    return event;
  }

  void fill(perfetto::TrackEvent& out, const TimelineEvent& event) {
    out.add_category_iids(interned(categories_, name_of(event.category),
                                   &perfetto::InternedData::add_event_categories));
    if (event.recurs)
      out.set_name_iid(interned(names_, event.name, &perfetto::InternedData::add_event_names));
    else
      out.set_name(event.name.data(), event.name.size());
    if (event.record == nullptr) return;
    for (const Detail& detail : Details(*event.record)) fill(*out.add_debug_annotations(), detail);
    if (event.flow == FlowRole::end)
      out.add_terminating_flow_ids(flow_id(*event.record));
    else if (event.flow != FlowRole::none)
      out.add_flow_ids(flow_id(*event.record));
  }

  void fill(perfetto::DebugAnnotation& out, const Detail& detail) {
    out.set_name_iid(interned(details_, name_of(detail.name),
                              &perfetto::InternedData::add_debug_annotation_names));
    if (detail.text == nullptr)
      out.set_int_value(detail.number);
    else
      out.set_string_value_iid(interned(
          texts_, detail.text, &perfetto::InternedData::add_debug_annotation_string_values));
  }

  // The number of a name; a new one is told in the packet that uses it first.
  std::uint64_t interned(InternedNames& names, std::string_view name,
                         perfetto::InternedName* (perfetto::InternedData::*add)()) {
    const InternedNames::Entry entry = names.find(name);
    if (entry.is_new) {
      perfetto::InternedName& told = *(packet_.mutable_interned_data()->*add)();
      told.set_iid(entry.iid);
      told.set_name(name.data(), name.size());
    }
    return entry.iid;
  }

  void write() {
    buffer_.push_back(kPacketTag);
    append_varint(buffer_, packet_.ByteSizeLong());
    packet_.AppendToString(&buffer_);
    if (buffer_.size() >= kPacketBuffer) flush();
  }

  void flush() {
    file_.stream().write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    if (!file_.stream()) failed_ = true;
    buffer_.clear();
  }

  AtomicFile file_;
  std::string buffer_;
  perfetto::TracePacket packet_;  // reused: its parts keep their memory
  bool first_ = true, failed_ = false;
  InternedNames categories_, names_, details_, texts_;
};

}  // namespace

Expected<std::unique_ptr<TimelineSink>> make_perfetto_file(const std::string& path) {
  auto file = AtomicFile::create(path);
  if (!file) return file.error();
  return std::unique_ptr<TimelineSink>(std::make_unique<PerfettoFile>(*std::move(file)));
}

}  // namespace grapevine
