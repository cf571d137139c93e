// Reads a file in Chrome's trace event format (the JSON object format). Header-only.
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/apps/trace/seen_timeline.hpp"

namespace grapevine {

class ChromeReader {
 public:
  static SeenTimeline read(const std::string& text) {
    ChromeReader reader;
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded() || !json.contains("traceEvents")) {
      reader.problem("not JSON, or no traceEvents");
      return std::move(reader.seen_);
    }
    const std::string unit = json.value("displayTimeUnit", "");
    if (unit != "ns" && unit != "ms") reader.problem("displayTimeUnit");
    for (const auto& event : json["traceEvents"]) reader.add(event);
    return std::move(reader.seen_);
  }

 private:
  void problem(const std::string& what) {
    if (seen_.problems.size() < 20) seen_.problems.push_back(what);
  }

  void add(const nlohmann::json& json) {
    for (const char* key : {"ph", "pid"})
      if (!json.contains(key)) return problem(std::string("event without ") + key);
    const std::string phase = json["ph"];
    const std::uint64_t pid = json["pid"];
    if (phase == "M") return describe(json, pid);
    if (!json.contains("ts")) return problem("event without ts");
    SeenEvent event;
    event.time_ns = std::llround(json["ts"].get<double>() * 1e3);
    if (phase == "C") return add_counter(json, pid, std::move(event));
    if (!json.contains("tid")) return problem("event without tid");
    event.track = json["tid"];
    if (seen_.tracks.count(event.track) == 0) problem("event before the name of its thread");
    if (phase == "s" || phase == "t" || phase == "f") return add_flow(json, phase, event);
    if (phase != "B" && phase != "E") return problem("phase " + phase);
    event.type = phase == "B" ? SeenType::begin : SeenType::end;
    event.category = json.value("cat", "");
    event.name = json.value("name", "");
    const auto args = json.value("args", nlohmann::json::object());
    for (const auto& [name, value] : args.items()) {
      if (value.is_string())
        event.texts[name] = value;
      else
        event.numbers[name] = value;
    }
    auto& open = open_[event.track];
    if (phase == "B") open.push_back(seen_.events.size());
    if (phase == "E" && !open.empty()) open.pop_back();
    seen_.events.push_back(std::move(event));
  }

  void describe(const nlohmann::json& json, std::uint64_t pid) {
    const std::string name = json["args"]["name"];
    if (json["name"] == "process_name") {
      if (!seen_.processes.emplace(pid, name).second) problem("pid twice");
      return;
    }
    if (json["name"] != "thread_name") return problem("unknown metadata");
    if (!seen_.tracks.emplace(json["tid"].get<std::uint64_t>(), SeenTrack{pid, name, false}).second)
      problem("tid twice");
  }

  void add_counter(const nlohmann::json& json, std::uint64_t pid, SeenEvent event) {
    const auto key = std::pair<std::uint64_t, std::string>(pid, json["name"]);
    const auto [found, is_new] = counters_.emplace(key, 1'000'000'000 + counters_.size());
    if (is_new) seen_.tracks[found->second] = {pid, key.second, true};
    event.track = found->second;
    event.type = SeenType::counter;
    event.value = json["args"]["value"];
    seen_.events.push_back(std::move(event));
  }

  // Belongs to the slice that is open there.
  void add_flow(const nlohmann::json& json, const std::string& phase, const SeenEvent& event) {
    const auto& open = open_[event.track];
    if (open.empty()) return problem("flow outside of slices");
    SeenEvent& slice = seen_.events[open.back()];
    if (slice.time_ns != event.time_ns) problem("flow that is not at the time of its slice");
    if (phase == "f" && json.value("bp", "") != "e") problem("flow's end binds to the next slice");
    (phase == "f" ? slice.ending_flows : slice.flows).push_back(json["id"]);
  }

  SeenTimeline seen_;
  std::map<std::uint64_t, std::vector<std::size_t>> open_;  // by track: places in events
  std::map<std::pair<std::uint64_t, std::string>, std::uint64_t> counters_;
};

}  // namespace grapevine
