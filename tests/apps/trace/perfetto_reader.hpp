// Reads a .pftrace by Perfetto's field numbers and types as they are published, with protobuf's
// reader of bare wire format: neither this project's .proto nor classes made of it have a part in
// it. Header-only.
#pragma once
#include <google/protobuf/io/coded_stream.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/apps/trace/seen_timeline.hpp"

namespace grapevine {

// A message as numbers and bytes.
struct WireField {
  std::uint64_t number = 0;  // of a varint or fixed64
  std::string bytes;
};
using WireMessage = std::map<int, std::vector<WireField>>;

class PerfettoReader {
 public:
  static SeenTimeline read(const std::string& bytes) {
    PerfettoReader reader;
    reader.read_trace(bytes);
    return std::move(reader.seen_);
  }
  // The packets of a trace, whole with their tag and length: for tests that damage one.
  static std::vector<std::string> packets(const std::string& bytes) {
    std::vector<std::string> all;
    google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                              static_cast<int>(bytes.size()));
    for (int at = 0; in.ReadTag() != 0;) {
      std::uint32_t size = 0;
      if (!in.ReadVarint32(&size) || !in.Skip(static_cast<int>(size))) break;
      const int end = in.CurrentPosition();
      all.push_back(bytes.substr(static_cast<std::size_t>(at), static_cast<std::size_t>(end - at)));
      at = end;
    }
    return all;
  }

 private:
  enum Wire { varint = 0, fixed64 = 1, length = 2 };
  using Fields = std::map<int, Wire>;  // that may occur, by number

  void problem(const std::string& what) {
    if (seen_.problems.size() < 20) seen_.problems.push_back(what);
  }

  WireMessage parse(const std::string& bytes, const char* type, const Fields& known) {
    WireMessage message;
    google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                              static_cast<int>(bytes.size()));
    while (const std::uint32_t tag = in.ReadTag()) {
      const int number = static_cast<int>(tag >> 3U), wire = static_cast<int>(tag & 7U);
      const auto found = known.find(number);
      if (found == known.end() || found->second != wire) {
        problem(std::string(type) + ": field " + std::to_string(number) + " of wire type " +
                std::to_string(wire));
        return message;
      }
      WireField field;
      std::uint32_t size = 0;
      const bool ok = wire == varint    ? in.ReadVarint64(&field.number)
                      : wire == fixed64 ? in.ReadLittleEndian64(&field.number)
                                        : in.ReadVarint32(&size) &&
                                              in.ReadString(&field.bytes, static_cast<int>(size));
      if (!ok) problem(std::string(type) + ": cut off in field " + std::to_string(number));
      message[number].push_back(field);
    }
    if (!in.ConsumedEntireMessage()) problem(std::string(type) + ": it does not end");
    return message;
  }

  static std::uint64_t number(const WireMessage& message, int field) {
    const auto found = message.find(field);
    return found == message.end() ? 0 : found->second.back().number;
  }
  static std::string text(const WireMessage& message, int field) {
    const auto found = message.find(field);
    return found == message.end() ? "" : found->second.back().bytes;
  }

  void read_trace(const std::string& bytes) {
    const WireMessage trace = parse(bytes, "Trace", {{1, length}});
    const auto packets = trace.find(1);
    if (packets == trace.end()) return problem("no packets");
    for (const WireField& packet : packets->second) read_packet(packet.bytes);
  }

  void read_packet(const std::string& bytes) {
    const WireMessage packet = parse(bytes, "TracePacket",
                                     {{8, varint},
                                      {10, varint},
                                      {11, length},
                                      {12, length},
                                      {13, varint},
                                      {60, length},
                                      {87, varint}});
    const std::uint64_t flags = number(packet, 13);
    if (number(packet, 10) == 0) problem("packet without a sequence");
    if ((number(packet, 87) != 0) != first_ || ((flags & 1U) != 0) != first_)
      problem("the first packet, and no other, clears the state of the sequence");
    first_ = false;
    if (packet.count(12) != 0) intern(text(packet, 12));
    if (packet.count(11) + packet.count(60) != 1) problem("a packet has an event or a descriptor");
    if (packet.count(60) != 0) describe(text(packet, 60));
    if (packet.count(11) == 0) return;
    if (packet.count(8) == 0) problem("event without a time");
    if ((flags & 2U) == 0) problem("event that does not declare that it needs names");
    read_event(static_cast<std::int64_t>(number(packet, 8)), text(packet, 11));
  }

  void intern(const std::string& bytes) {
    const WireMessage data =
        parse(bytes, "InternedData", {{1, length}, {2, length}, {3, length}, {29, length}});
    for (const auto& [kind, entries] : data)
      for (const WireField& entry : entries) {
        const WireMessage name = parse(entry.bytes, "interned", {{1, varint}, {2, length}});
        if (number(name, 1) == 0) problem("interned name 0");
        if (!names_[kind].emplace(number(name, 1), text(name, 2)).second)
          problem("name interned twice: " + text(name, 2));
      }
  }
  std::string name_of(int kind, std::uint64_t iid) {
    const auto found = names_[kind].find(iid);
    if (found != names_[kind].end()) return found->second;
    problem("name " + std::to_string(iid) + " of kind " + std::to_string(kind) +
            " is not interned");
    return "";
  }

  void describe(const std::string& bytes) {
    const WireMessage track =
        parse(bytes, "TrackDescriptor",
              {{1, varint}, {2, length}, {3, length}, {4, length}, {5, varint}, {8, length}});
    const std::uint64_t uuid = number(track, 1), parent = number(track, 5);
    if (uuid == 0 || !uuids_.insert(uuid).second) problem("uuid twice: " + std::to_string(uuid));
    if (track.count(3) + track.count(4) + track.count(8) != 1) problem("descriptor of no one kind");
    if (track.count(3) != 0) {
      const WireMessage process =
          parse(text(track, 3), "ProcessDescriptor", {{1, varint}, {6, length}});
      if (!pids_.emplace(number(process, 1), uuid).second) problem("pid twice");
      if (number(process, 1) == 0) problem("pid 0");
      seen_.processes[uuid] = text(process, 6);
      return;
    }
    if (seen_.processes.count(parent) == 0) problem("track before its process");
    seen_.tracks[uuid] = {parent, text(track, 2), track.count(8) != 0};
    if (track.count(8) != 0) {
      const WireMessage counter = parse(text(track, 8), "CounterDescriptor", {{3, varint}});
      if (number(counter, 3) != 2 && number(counter, 3) != 3) problem("unit of a counter");
      return;
    }
    const WireMessage thread =
        parse(text(track, 4), "ThreadDescriptor", {{1, varint}, {2, varint}, {5, length}});
    if (pids_.count(number(thread, 1)) == 0 || pids_[number(thread, 1)] != parent)
      problem("thread and its parent are of different processes");
    if (pids_.count(number(thread, 2)) != 0 || !tids_.insert(number(thread, 2)).second)
      problem("tid twice");
    if (text(thread, 5) != text(track, 2)) problem("thread and track have different names");
  }

  void read_event(std::int64_t time_ns, const std::string& bytes) {
    const WireMessage message = parse(bytes, "TrackEvent",
                                      {{3, varint},
                                       {4, length},
                                       {9, varint},
                                       {10, varint},
                                       {11, varint},
                                       {23, length},
                                       {30, varint},
                                       {47, fixed64},
                                       {48, fixed64}});
    SeenEvent event;
    event.time_ns = time_ns;
    event.track = number(message, 11);
    event.type = static_cast<SeenType>(number(message, 9));
    if (uuids_.count(event.track) == 0) problem("event before the description of its track");
    if (number(message, 9) < 1 || number(message, 9) > 4) problem("type of an event");
    if (message.count(10) != 0) event.name = name_of(2, number(message, 10));
    if (message.count(23) != 0) event.name = text(message, 23);
    if (message.count(3) != 0) event.category = name_of(1, number(message, 3));
    if ((event.type == SeenType::counter) != (message.count(30) != 0))
      problem("a counter, and nothing else, has a value");
    event.value = static_cast<std::int64_t>(number(message, 30));
    if (const auto found = message.find(4); found != message.end())
      for (const WireField& detail : found->second) add_detail(event, detail.bytes);
    for (const int field : {47, 48})
      if (const auto found = message.find(field); found != message.end())
        for (const WireField& id : found->second)
          (field == 47 ? event.flows : event.ending_flows)
              .push_back(std::to_string((id.number >> 40U) - 1) + ":" +
                         std::to_string(id.number & ((std::uint64_t{1} << 40U) - 1)));
    seen_.events.push_back(std::move(event));
  }

  void add_detail(SeenEvent& event, const std::string& bytes) {
    const WireMessage detail =
        parse(bytes, "DebugAnnotation", {{1, varint}, {4, varint}, {17, varint}});
    const std::string name = name_of(3, number(detail, 1));
    if (detail.count(4) + detail.count(17) != 1) problem("detail without a value: " + name);
    if (detail.count(4) != 0) event.numbers[name] = static_cast<std::int64_t>(number(detail, 4));
    if (detail.count(17) != 0) event.texts[name] = name_of(29, number(detail, 17));
  }

  SeenTimeline seen_;
  bool first_ = true;
  std::map<int, std::map<std::uint64_t, std::string>> names_;  // by field of InternedData
  std::set<std::uint64_t> uuids_, tids_;
  std::map<std::uint64_t, std::uint64_t> pids_;  // -> uuid
};

}  // namespace grapevine
