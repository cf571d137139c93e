#include "apps/wiring/wiring_drawing.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "algorithms/lockstep/lockstep.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/codec.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kDrawnParameters = 1000;

// The messages of one type from one rank to another.
struct Arrow {
  std::int64_t messages = 0;
  std::uint64_t bytes = 0;
};
using Arrows = std::map<std::tuple<Rank, Rank, std::string>, Arrow>;

std::string dot_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return '"' + escaped + '"';
}

Expected<std::shared_ptr<const SharedParts>> parts_for_drawing(const Plan& plan,
                                                               std::int32_t ranks) {
  if (ranks < 1 || ranks > kMostDrawnRanks)
    return bad_input("--ranks " + std::to_string(ranks) + ": a drawing has 1.." +
                     std::to_string(kMostDrawnRanks));
  Horizon horizon;
  horizon.steps = 4 * plan.local.steps.by_epoch.at(0);
  horizon.steps_per_epoch = static_cast<double>(horizon.steps);
  OptimizerConfig optimizer;
  optimizer.momentum = plan.role->uses_momentum(plan) ? 0.9 : 0;
  return make_parts(plan, horizon, *LrSchedule::make({}), optimizer, ranks);
}

// Gradients that differ by rank and entry, so that selections differ as in training.
at::Tensor drawn_gradient(Rank rank, Step step, const at::Tensor& z) {
  return at::sin(at::arange(z.numel(), at::kFloat) * static_cast<double>(rank + 1) +
                 static_cast<double>(step));
}

// Whether both train in one node of a hierarchy: what they send each other is no exchange.
bool same_node(const SharedParts& parts, std::int32_t workers, Rank one, Rank other) {
  const std::int32_t size = parts.plan.hierarchy;
  return size > 1 && one < workers && other < workers && one / size == other / size;
}

// Of the start, or else of the first gradients after which messages are sent.
Arrows arrows_of_one_exchange(const std::shared_ptr<const SharedParts>& parts,
                              std::int32_t workers) {
  Arrows arrows;
  bool exchanged = false;
  Lockstep world(
      parts, workers, [](Rank) { return at::zeros({kDrawnParameters}); }, &drawn_gradient,
      [&](const Envelope& message) {
        Arrow& arrow = arrows[{message.from, message.to, payload_name(message.payload)}];
        ++arrow.messages;
        arrow.bytes += wire_size(message);
        exchanged = exchanged || !same_node(*parts, workers, message.from, message.to);
        return true;
      });
  world.start();
  while (!exchanged && world.sweep()) {
  }
  return arrows;
}

std::string peer_node(Rank rank) { return "peer" + std::to_string(rank); }

void print_actors(const SharedParts& parts, std::int32_t workers, std::ostream& out) {
  const std::int32_t all = all_ranks_of(parts.plan, workers);
  const std::string role = parts.plan.role->name;
  for (Rank rank = 0; rank < all; ++rank) {
    const bool server = rank >= workers;
    const std::string what = server ? "server" : role;
    out << fmt::format(
        "  subgraph cluster_{0} {{\n    label=\"rank {0}\" style=\"rounded,dashed\"\n", rank);
    out << fmt::format("    {} [label=\"Peer\\n{}\"]\n", peer_node(rank), what);
    if (!server) {
      out << fmt::format("    worker{} [label=\"GpuWorker\" style=\"rounded,filled\"]\n", rank);
      out << fmt::format("    {0} -> worker{1} [label=\"GradientRequest\\nz\" style=dotted]\n",
                         peer_node(rank), rank);
      out << fmt::format("    worker{1} -> {0} [label=\"Gradient\" style=dotted]\n",
                         peer_node(rank), rank);
    }
    out << "  }\n";
  }
}

// The messages of one type from one rank to another.
struct Label {
  std::string name;
  std::uint64_t bytes = 0;
};
using Labels = std::map<std::pair<Rank, Rank>, std::vector<Label>>;

Labels labels_of(const Arrows& arrows) {
  Labels labels;
  for (const auto& [key, arrow] : arrows) {
    const auto& [from, to, type] = key;
    const std::string count =
        arrow.messages == 1 ? std::string() : fmt::format(" ×{}", arrow.messages);
    labels[{from, to}].push_back({type + count, arrow.bytes});
  }
  return labels;
}

// `space`: between a name and its bytes.
std::string joined(const std::vector<Label>& labels, const char* space, const char* separator) {
  std::string text;
  for (const Label& label : labels)
    text +=
        fmt::format("{}{}{}{} B", text.empty() ? "" : separator, label.name, space, label.bytes);
  return text;
}

std::string one_direction(const std::vector<Label>& labels) {
  return joined(labels, labels.size() == 1 ? "\\n" : " ", "\\n");
}

std::string both_directions(Rank from, Rank to, const std::vector<Label>& there,
                            const std::vector<Label>& back) {
  const std::string text = joined(there, " ", "; "), other = joined(back, " ", "; ");
  if (text == other) return joined(there, " ", "\\n") + "\\neach way";
  return fmt::format("{0} → {1}: {2}\\n{1} → {0}: {3}", from, to, text, other);
}

// The arrows among workers leave the ranks side by side: Graphviz draws the two of a pair on top of
// each other, so they are one line with two heads. Servers are below the workers.
void print_arrows(const Arrows& arrows, std::int32_t workers, std::ostream& out) {
  const Labels labels = labels_of(arrows);
  for (const auto& [pair, there] : labels) {
    const auto [from, to] = pair;
    const bool level = from < workers && to < workers;
    const auto back = labels.find({to, from});
    const bool both = level && back != labels.end();
    if (both && from > to) continue;
    const std::string text =
        both ? both_directions(from, to, there, back->second) : one_direction(there);
    out << fmt::format("  {} -> {} [label=\"{}\"{}{}]\n", peer_node(from), peer_node(to), text,
                       both ? " dir=both" : "", level ? " constraint=false" : "");
  }
}

}  // namespace

Expected<void> draw_wiring(const Plan& plan, std::int32_t ranks, const std::string& title,
                           std::ostream& out) {
  const auto parts = parts_for_drawing(plan, ranks);
  if (!parts) return parts.error();
  const Arrows arrows = arrows_of_one_exchange(*parts, ranks);
  out << fmt::format("digraph wiring {{\n  label={}\n  labelloc=t\n",
                     dot_text(title + ": the messages of one exchange, for a model of " +
                              std::to_string(kDrawnParameters) + " parameters"));
  out << "  graph [fontname=\"sans-serif\" nodesep=0.5 ranksep=0.7]\n"
         "  node [shape=box style=rounded fontname=\"sans-serif\"]\n"
         "  edge [fontname=\"sans-serif\" fontsize=10]\n";
  print_actors(**parts, ranks, out);
  print_arrows(arrows, ranks, out);
  out << "}\n";
  return {};
}

}  // namespace grapevine
