// SeenTimeline: a timeline as a viewer reads it from a file, and the rules that it must keep.
// Header-only.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace grapevine {

enum class SeenType { begin = 1, end, instant, counter };

struct SeenEvent {
  std::uint64_t track = 0;
  std::int64_t time_ns = 0;
  SeenType type = SeenType::instant;
  std::string category, name;
  std::map<std::string, std::int64_t> numbers;
  std::map<std::string, std::string> texts;
  std::vector<std::string> flows, ending_flows;  // ids
  std::int64_t value = 0;                        // of a counter
};

struct SeenTrack {
  std::uint64_t process = 0;
  std::string name;
  bool is_counter = false;
};

// Reading a file already finds what is broken; problems are added to these.
struct SeenTimeline {
  std::map<std::uint64_t, std::string> processes;
  std::map<std::uint64_t, SeenTrack> tracks;
  std::vector<SeenEvent> events;  // in the order of the file
  std::vector<std::string> problems;
};

class TimelineRules {
 public:
  explicit TimelineRules(const SeenTimeline& seen) : problems_(seen.problems) {
    for (const auto& [id, track] : seen.tracks)
      if (seen.processes.count(track.process) == 0)
        problem("track of an unknown process: " + track.name);
    for (const SeenEvent& event : seen.events) follow(seen, event);
    for (const auto& [id, open] : open_)
      if (!open.empty()) problem("slice without an end: " + open.back());
    check_flows(seen);
  }
  // At most a few of each kind; empty: all rules are kept.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void problem(const std::string& what) {
    if (problems_.size() < 20) problems_.push_back(what);
  }

  void follow(const SeenTimeline& seen, const SeenEvent& event) {
    const auto track = seen.tracks.find(event.track);
    const std::string where = event.name + " at " + std::to_string(event.time_ns);
    if (track == seen.tracks.end()) return problem("unknown track: " + where);
    if (event.time_ns < 0) problem("negative time: " + where);
    const auto last = last_.find(event.track);
    if (last != last_.end() && event.time_ns < last->second)
      problem("time decreases: " + track->second.name + ", " + where);
    last_[event.track] = event.time_ns;
    if ((event.type == SeenType::counter) != track->second.is_counter)
      problem("counter and slices on one track: " + where);
    const bool is_instant = event.type == SeenType::instant;
    const auto instant = instant_.find(event.track);
    if (is_instant && instant != instant_.end() && instant->second == event.time_ns)
      problem("instants of one time, which are stacked: " + where);
    if (is_instant)
      instant_[event.track] = event.time_ns;
    else
      instant_.erase(event.track);
    auto& open = open_[event.track];
    if (event.type == SeenType::begin) open.push_back(event.name);
    if (event.type == SeenType::end && open.empty())
      problem("end without a begin: " + track->second.name + ", " + where);
    else if (event.type == SeenType::end)
      open.pop_back();
    if ((event.type == SeenType::begin || event.type == SeenType::instant) && event.name.empty())
      problem("no name: " + where);
  }

  struct Use {
    const SeenEvent* event;
    bool ends;
  };
  // In the order in which a viewer handles them: by time, then by place in the file.
  void check_flows(const SeenTimeline& seen) {
    std::vector<const SeenEvent*> ordered;
    for (const SeenEvent& event : seen.events) ordered.push_back(&event);
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const auto* a, const auto* b) { return a->time_ns < b->time_ns; });
    std::map<std::string, std::vector<Use>> flows;
    for (const SeenEvent* event : ordered) {
      for (const auto& id : event->flows) flows[id].push_back({event, false});
      for (const auto& id : event->ending_flows) flows[id].push_back({event, true});
    }
    for (const auto& [id, uses] : flows) check_flow(id, uses);
  }

  static bool starts_with(const std::string& text, const std::string& start) {
    return text.compare(0, start.size(), start) == 0;
  }

  void check_flow(const std::string& id, const std::vector<Use>& uses) {
    if (uses.size() < 2) return problem("flow with one end: " + id);
    if (!starts_with(uses[0].event->name, "sent"))
      problem("flow that does not begin at a sending: " + id + ", " + uses[0].event->name);
    if (!starts_with(uses[1].event->name, "received"))
      problem("flow that does not lead to a receipt: " + id + ", " + uses[1].event->name);
    for (std::size_t i = 0; i < uses.size(); ++i)
      if (uses[i].ends != (i + 1 == uses.size())) problem("flow that ends in its midst: " + id);
    for (std::size_t i = 2; i < uses.size(); ++i)
      if (uses[i].event->track != uses[1].event->track)
        problem("message used by another rank than its receiver: " + id);
  }

  std::vector<std::string> problems_;
  std::map<std::uint64_t, std::int64_t> last_;
  std::map<std::uint64_t, std::int64_t> instant_;  // where the newest event of a track is one
  std::map<std::uint64_t, std::vector<std::string>> open_;
};

}  // namespace grapevine
