#include "apps/topology/topology_command.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <ostream>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "algorithms/graphs/topology.hpp"
#include "algorithms/graphs/topology_type.hpp"
#include "apps/console/json_text.hpp"
#include "apps/console/verb_options.hpp"

namespace grapevine {
namespace {

// The dense product of a period grows with n^2 and its powers with n^3.
constexpr std::int32_t kMaxContractionRanks = 1024;
constexpr std::int64_t kMaxEdges = std::int64_t{1} << 24;  // of a period
constexpr std::int32_t kShownRanks = 16;
constexpr std::size_t kTableWidth = 96;

std::string join(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank r : ranks) text += (text.empty() ? "" : " ") + std::to_string(r);
  return text.empty() ? "-" : text;
}

// The destinations of a rank, each with the weight of its edge where the graph has weights.
std::string destinations(const Topology& topology, std::int64_t round, Rank rank) {
  if (!topology.has_weights(round)) return join(topology.out(round, rank));
  std::ostringstream text;
  text << std::setprecision(3);
  for (const Shares::Link& link : topology.own_shares(round, rank).links)
    text << (text.tellp() > 0 ? " " : "") << link.peer << ':' << link.weight;
  return text.tellp() > 0 ? text.str() : "-";
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string trimmed(const std::string& text) {
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

// Of a graph from outside; docs/algorithms.md describes the others.
std::string meaning_of_peers(const std::string& name) {
  const TopologyType* type = registered_topology(name);
  return type == nullptr ? "" : " (peers: " + type->peers + ")";
}

// NaN, which JSON prints as null, where it would take minutes.
double contraction_of(const Topology& topology) {
  if (topology.ranks() > kMaxContractionRanks) return std::nan("");
  return topology.contraction();
}

// As they are sent, in the order of the destinations.
nlohmann::ordered_json weights_of(const Topology& topology) {
  auto rounds = nlohmann::ordered_json::array();
  for (std::int64_t round = 0; round < topology.period(); ++round) {
    auto lists = nlohmann::ordered_json::array();
    for (Rank i = 0; i < topology.ranks(); ++i) {
      auto weights = nlohmann::ordered_json::array();
      for (const Shares::Link& link : topology.own_shares(round, i).links)
        weights.push_back(link.weight);
      lists.push_back(std::move(weights));
    }
    rounds.push_back(std::move(lists));
  }
  return rounds;
}

void print_json(const Topology& topology, std::ostream& out) {
  auto rounds = nlohmann::ordered_json::array();
  for (std::int64_t round = 0; round < topology.period(); ++round) {
    auto lists = nlohmann::ordered_json::array();
    for (Rank i = 0; i < topology.ranks(); ++i) lists.push_back(topology.out(round, i));
    rounds.push_back(std::move(lists));
  }
  nlohmann::ordered_json object;
  object["name"] = topology.name();
  object["ranks"] = topology.ranks();
  object["peers"] = topology.peers();
  object["period"] = topology.period();
  object["rounds"] = std::move(rounds);
  if (topology.has_weights(0)) object["weights"] = weights_of(topology);
  object["doubly_stochastic"] = topology.doubly_stochastic();
  object["contraction"] = contraction_of(topology);
  out << json_text(object) << '\n';
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

// One Graphviz edge for each pair of ranks and set of rounds, with two arrow heads where both
// directions carry the same rounds.
void print_dot(const Topology& topology, std::ostream& out) {
  std::map<std::pair<Rank, Rank>, std::vector<std::int64_t>> edges;
  for (std::int64_t round = 0; round < topology.period(); ++round) {
    for (Rank i = 0; i < topology.ranks(); ++i) {
      for (const Rank j : topology.out(round, i)) edges[{i, j}].push_back(round);
    }
  }
  out << "digraph " << quoted(topology.name()) << " {\n"
      << "  layout=circo;\n  node [shape=circle];\n";
  for (Rank i = 0; i < topology.ranks(); ++i) out << "  " << i << ";\n";
  for (const auto& [edge, rounds] : edges) {
    const auto back = edges.find({edge.second, edge.first});
    const bool both = back != edges.end() && back->second == rounds;
    if (both && edge.first > edge.second) continue;
    out << "  " << edge.first << " -> " << edge.second << " [";
    if (both) out << "dir=both";
    if (topology.period() > 1) {
      out << (both ? ", " : "") << "label=\"";
      for (std::size_t k = 0; k < rounds.size(); ++k) out << (k > 0 ? "," : "") << rounds[k];
      out << '"';
    }
    out << "];\n";
  }
  out << "}\n";
}

void print_row(std::ostream& out, const std::string& label, const std::string& value) {
  out << padded(label, 19) << value << '\n';
}

std::string count_of(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string describe_contraction(const Topology& topology) {
  const double contraction = contraction_of(topology);
  if (std::isnan(contraction)) {
    return "not computed above " + std::to_string(kMaxContractionRanks) + " ranks";
  }
  if (contraction == 0) return "0 (a period averages exactly, up to rounding)";
  // Rounding leaves the eigenvalue of a graph in several parts this close to 1.
  if (contraction > 1 - 1e-9) return "1 (some ranks never reach each other: they cannot agree)";
  std::ostringstream text;
  text << std::setprecision(4) << contraction << " per period";
  if (topology.period() > 1) {
    text << ", " << std::pow(contraction, 1.0 / static_cast<double>(topology.period()))
         << " per round";
  }
  return text.str();
}

std::string describe_messages(const Topology& topology) {
  std::size_t low = topology.out(0, 0).size();
  std::size_t high = low;
  for (std::int64_t round = 0; round < topology.period(); ++round) {
    for (Rank i = 0; i < topology.ranks(); ++i) {
      low = std::min(low, topology.out(round, i).size());
      high = std::max(high, topology.out(round, i).size());
    }
  }
  const std::string most = count_of(static_cast<std::int64_t>(high), "message");
  return (low == high ? most : std::to_string(low) + " to " + most) + " sent by a rank in a round";
}

// Destinations, ranks down and rounds across, as far as they fit.
void print_rounds(const Topology& topology, std::ostream& out) {
  const Rank shown = std::min(topology.ranks(), kShownRanks);
  std::string header = "rank";
  std::vector<std::string> lines;
  for (Rank i = 0; i < shown; ++i) {
    const std::string number = std::to_string(i);
    lines.push_back(std::string(4 - number.size(), ' ') + number);
  }
  std::int64_t round = 0;
  for (std::size_t width = 4; round < topology.period(); ++round) {
    const std::string title = "round " + std::to_string(round);
    std::size_t column = title.size();
    for (Rank i = 0; i < shown; ++i)
      column = std::max(column, destinations(topology, round, i).size());
    width += column + 2;
    if (round > 0 && width > kTableWidth) break;
    header += "  " + padded(title, column);
    for (Rank i = 0; i < shown; ++i) {
      lines[static_cast<std::size_t>(i)] += "  " + padded(destinations(topology, round, i), column);
    }
  }
  out << '\n' << trimmed(header) << '\n';
  for (const std::string& line : lines) out << trimmed(line) << '\n';
  const std::int64_t more_rounds = topology.period() - round;
  if (topology.ranks() > shown) {
    out << "and " << count_of(topology.ranks() - shown, "more rank") << '\n';
  }
  if (more_rounds > 0) out << "and " << count_of(more_rounds, "more round") << '\n';
}

void print_table(const Topology& topology, std::ostream& out) {
  print_row(out, "topology", topology.name());
  print_row(out, "ranks", std::to_string(topology.ranks()));
  print_row(out, "peers", std::to_string(topology.peers()));
  print_row(out, "period", count_of(topology.period(), "round"));
  print_row(out, "load", describe_messages(topology));
  print_row(out, "weights", topology.has_weights(0) ? "the graph's own" : "even, 1/(messages + 1)");
  print_row(out, "contraction", describe_contraction(topology));
  print_row(out, "doubly stochastic", topology.doubly_stochastic() ? "yes" : "no");
  print_row(out, "symmetric", topology.symmetric() ? "yes" : "no");
  print_rounds(topology, out);
}

class TopologyCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("name", name_, "a graph by its name, or file:PATH")->required();
    add_option(app, "ranks", ranks_, "number of ranks");
    add_option(app, "peers", peers_, "destinations of a rank in a round");
    add_switch(app, "json", json_, "print one JSON object");
    add_switch(app, "dot", dot_, "print a Graphviz drawing");
    add_option(app, "config", config_, "TOML file with options");
    app_ = &app;
    std::string names = "Graphs:";
    for (const std::string& name : topology_names())
      names += "\n  " + name + meaning_of_peers(name);
    app.footer(names +
               "\n  random-regular:SEED\n  file:PATH (a line for each edge: 'i j' or 'i -> j', "
               "with or without a weight)");
  }

  Expected<void> run(Console& console) override {
    if (auto read = read_config_file(*app_, config_); !read) return read;
    if (json_ && dot_) return bad_input("--json and --dot: choose one of them");
    const auto topology = make_topology(name_, ranks_, peers_);
    if (!topology) return topology.error();
    if (auto fits = check_size(**topology); !fits) return fits;
    if (json_) {
      print_json(**topology, console.out);
    } else if (dot_) {
      print_dot(**topology, console.out);
    } else {
      print_table(**topology, console.out);
    }
    return {};
  }

 private:
  // Training makes one round at a time; here all of them are looked at.
  static Expected<void> check_size(const Topology& topology) {
    std::int64_t in_a_round = 0;
    for (Rank rank = 0; rank < topology.ranks(); ++rank)
      in_a_round += static_cast<std::int64_t>(topology.out(0, rank).size());
    if (topology.period() <= kMaxEdges / std::max<std::int64_t>(1, in_a_round)) return {};
    return bad_input("topology '" + topology.name() + "' with " + std::to_string(topology.ranks()) +
                     " ranks: its period of " + std::to_string(topology.period()) +
                     " rounds has more than " + std::to_string(kMaxEdges) +
                     " edges: use fewer ranks");
  }

  std::string name_;
  std::int32_t ranks_ = 8;
  std::int32_t peers_ = 1;
  CLI::App* app_ = nullptr;
  std::string config_;
  bool json_ = false;
  bool dot_ = false;
};

}  // namespace

std::unique_ptr<Command> make_topology_command() { return std::make_unique<TopologyCommand>(); }

}  // namespace grapevine
