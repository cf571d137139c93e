#include "apps/node/node_log.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>

#include "apps/console/json_text.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kLongestLog = std::size_t{1} << 20;  // of lines that wait for a reader

}  // namespace

NodeLog::NodeLog(Console& console, bool json)
    : json_(json), writer_(console, kLongestLog, write_plain_line) {}

void NodeLog::drain(SignalPipe& signals) {
  bool ends = true;
  writer_.drain(signals, ends);
}

void NodeLog::listening(const std::string& address) {
  if (json_) return put({{"event", "listening"}, {"address", address}});
  write("listening on " + address);
}

void NodeLog::joined(const std::string& first, const Enlisted& pool) {
  if (json_)
    return put(
        {{"event", "joined"}, {"first", first}, {"nodes", pool.nodes}, {"slots", pool.slots}});
  note(fmt::format("joined {}: {}, {}", first, counted(pool.nodes, "node"),
                   counted(pool.slots, "slot")));
}

void NodeLog::status(const PoolStatus& status, const std::string& what) {
  if (json_)
    return put({{"event", "status"},
                {"what", what},
                {"nodes", status.nodes},
                {"slots", status.slots},
                {"state", status.job > 0 ? "busy" : "idle"},
                {"job", status.job},
                {"processes", status.processes}});
  const std::string job = status.job == 0
                              ? "idle"
                              : fmt::format("job {} of {} on {}", status.job, status.user,
                                            counted(status.processes, "slot"));
  note(fmt::format("{}\n{}, {}, {}", what, counted(status.nodes, "node"),
                   counted(status.slots, "slot"), job));
}

void NodeLog::note(const std::string& text) {
  if (json_) return put({{"event", "note"}, {"what", text}});
  write(text);
}

void NodeLog::put(const nlohmann::ordered_json& line) { write(json_text(line)); }

void NodeLog::write(const std::string& text) { writer_.add({0, false, text}); }

}  // namespace grapevine
