#include "apps/trace/provenance/provenance_report.hpp"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "apps/console/text/figures.hpp"
#include "apps/console/text/table.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShownUpdates = 64;

double in_seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

ordered_json time_json(const TraceTime& ns) {
  return ns ? ordered_json(in_seconds(*ns)) : ordered_json(nullptr);
}

ordered_json hop_json(const MessageHop& hop) {
  return {{"from", hop.from},
          {"to", hop.to},
          {"message", name_of(hop.payload)},
          {"bytes", hop.bytes},
          {"sent_s", time_json(hop.sent_ns)},
          {"received_s", time_json(hop.received_ns)}};
}

std::string path_name(const TracedUpdate& update) {
  switch (update.path) {
    case PathKind::own:
      return "own";
    case PathKind::operation:
      return "all-reduce";
    case PathKind::message:
      break;
  }
  const PayloadKind payload = update.hops.back().payload;
  return payload == PayloadKind::none ? "message" : name_of(payload);
}

ordered_json path_json(const TracedUpdate& update, const Provenance& provenance) {
  ordered_json path = {{"kind", path_name(update)}};
  if (update.path == PathKind::message) {
    const std::int64_t operation = update.hops.back().operation;
    path["operation"] = operation < 0 ? ordered_json(nullptr) : ordered_json(operation);
    path["hops"] = ordered_json::array();
    for (const MessageHop& hop : update.hops) path["hops"].push_back(hop_json(hop));
  } else if (update.path == PathKind::operation) {
    const TracedOperation& operation = provenance.operations[update.operation];
    path["operation"] = operation.number;
    path["members"] = operation.members;
    path["messages"] = operation.messages;
    path["bytes"] = operation.bytes;
    path["last"] = operation.last ? hop_json(*operation.last) : ordered_json(nullptr);
  }
  return path;
}

ordered_json update_json(const TracedUpdate& update, const Provenance& provenance) {
  const TracedGradient& gradient = update.gradient;
  return {{"worker", gradient.worker},
          {"step", gradient.step},
          {"batch", gradient.step},
          {"version", gradient.version},
          {"staleness", update.staleness ? ordered_json(*update.staleness) : ordered_json(nullptr)},
          {"at", update.at},
          {"at_step", update.at_step},
          {"time_s", in_seconds(update.time_ns)},
          {"bytes", update.bytes},
          {"asked_s", time_json(gradient.asked_ns)},
          {"data_wait_s", time_json(gradient.data_ns)},
          {"compute_s", time_json(gradient.compute_ns)},
          {"produced_s", time_json(gradient.produced_ns)},
          {"path", path_json(update, provenance)}};
}

// ---- for people ----

std::string time_cell(const TraceTime& ns) {
  return ns ? fmt::format("{:.6f}s", in_seconds(*ns)) : "-";
}

std::string duration_cell(const TraceTime& ns) { return ns ? format_duration(Duration(*ns)) : "-"; }

std::string hop_text(const MessageHop& hop, const TerminalStyle& style) {
  std::string text = hop.payload == PayloadKind::none ? "message" : name_of(hop.payload);
  if (hop.operation >= 0) text += fmt::format(" {}", hop.operation);
  text += fmt::format(" {}{}{}", hop.from, style.unicode ? "→" : "->", hop.to);
  if (!hop.sent_ns) return text + ", its sending is not in the trace";
  text += " sent " + time_cell(hop.sent_ns);
  if (!hop.received_ns) return text;
  if (hop.of_checkpoint)
    return text + ", received in the resumed run at " + time_cell(hop.received_ns);
  return text + ", received after " + format_duration(Duration(*hop.received_ns - *hop.sent_ns));
}

std::string path_text(const TracedUpdate& update, const Provenance& provenance,
                      const TerminalStyle& style) {
  if (update.path == PathKind::own) return "own gradient";
  if (update.path == PathKind::operation)
    return fmt::format("all-reduce {}", provenance.operations[update.operation].number);
  std::string text;
  for (const MessageHop& hop : update.hops)
    text += (text.empty() ? "" : "; ") + hop_text(hop, style);
  if (update.at != provenance.step.rank)
    text += fmt::format("; version {} of rank {}", update.at_step, update.at);
  return text;
}

void print_operation(const TracedOperation& operation, const TerminalStyle& style,
                     std::ostream& out) {
  out << fmt::format("\nall-reduce {}: ", operation.number)
      << (operation.members.empty() ? "its members are not in the trace"
                                    : "members " + ranks_in_words(operation.members))
      << ", the result was there at " << time_cell(operation.time_ns) << '\n';
  if (operation.messages == 0) return;
  out << fmt::format("  received: {} message{} with {}", format_count(operation.messages),
                     operation.messages == 1 ? "" : "s", format_bytes(operation.bytes));
  if (operation.last) out << "; the last: " << hop_text(*operation.last, style);
  out << '\n';
}

void print_step_line(const Provenance& provenance, bool serves, std::ostream& out) {
  const auto [rank, step] = provenance.step;
  out << (serves ? fmt::format("Version {} of rank {}, a server", step, rank)
                 : fmt::format("Step {} of rank {}", step, rank));
  if (provenance.done_ns) out << ", done at " << time_cell(provenance.done_ns);
  if (!provenance.taken) out << ", not taken in this trace";
  const std::size_t updates = provenance.updates.size();
  out << fmt::format(": {} update{}\n", updates == 0 ? "no" : std::to_string(updates),
                     updates == 1 ? "" : "s");
  if (provenance.dropped) out << "The gradient of this step was dropped.\n";
}

}  // namespace

std::string ranks_in_words(const std::vector<Rank>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[first]);
    if (last > first) text += "-" + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

ordered_json provenance_json(const Provenance& provenance,
                             const std::vector<std::string>& missing) {
  ordered_json object;
  object["rank"] = provenance.step.rank;
  object["step"] = provenance.step.step;
  object["taken"] = provenance.taken;
  object["done_s"] = time_json(provenance.done_ns);
  object["dropped"] = provenance.dropped;
  object["updates"] = ordered_json::array();
  for (const TracedUpdate& update : provenance.updates)
    object["updates"].push_back(update_json(update, provenance));
  object["missing"] = missing;
  return object;
}

void print_provenance(const Provenance& provenance, std::int32_t workers,
                      const TerminalStyle& style, std::ostream& out) {
  print_step_line(provenance, provenance.step.rank >= workers, out);
  if (provenance.updates.empty()) return;
  Table table({"worker", "step", "batch", "version", "staleness", "asked", "computed in", "applied",
               "path"});
  const std::size_t shown = std::min(kShownUpdates, provenance.updates.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const TracedUpdate& update = provenance.updates[i];
    const TracedGradient& gradient = update.gradient;
    const std::string step = std::to_string(gradient.step);
    table.add_row({std::to_string(gradient.worker), step, step, std::to_string(gradient.version),
                   update.staleness ? std::to_string(*update.staleness) : "-",
                   time_cell(gradient.asked_ns), duration_cell(gradient.compute_ns),
                   time_cell(update.time_ns), path_text(update, provenance, style)});
  }
  out << '\n' << table;
  if (provenance.updates.size() > shown)
    out << fmt::format("and {} more (--json has all)\n", provenance.updates.size() - shown);
  for (const TracedOperation& operation : provenance.operations)
    print_operation(operation, style, out);
}

}  // namespace grapevine
