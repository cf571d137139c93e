#include "algorithms/graphs/edge_list.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

// Of an edge, and of what a rank keeps: a weight of 0 would be a share without mass.
constexpr double kLeastWeight = 1e-6;

struct EdgeLine {
  std::int64_t from = 0;
  std::int64_t to = 0;
  bool one_way = false;
  std::optional<double> weight;
};

// The whole of `word` as a number.
template <class Number>
bool read_number(const std::string& word, Number& number) {
  std::istringstream in(word);
  return (in >> number) && in.peek() == std::istringstream::traits_type::eof();
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Nothing where the text is no edge.
std::optional<EdgeLine> parse_edge(std::string text) {
  EdgeLine edge;
  const std::size_t arrow = text.find("->");
  if (arrow != std::string::npos) {
    edge.one_way = true;
    text.replace(arrow, 2, " ");
  }
  const std::vector<std::string> words = words_of(text);
  if (words.size() < 2 || words.size() > 3) return std::nullopt;
  if (!read_number(words[0], edge.from) || !read_number(words[1], edge.to)) return std::nullopt;
  if (words.size() == 2) return edge;
  double weight = 0;
  if (!read_number(words[2], weight)) return std::nullopt;
  edge.weight = weight;
  return edge;
}

Expected<void> check_edge(const EdgeLine& edge, const std::string& where, std::int32_t ranks) {
  for (const std::int64_t end : {edge.from, edge.to}) {
    if (end >= 0 && end < ranks) continue;
    return bad_input(where + "rank " + std::to_string(end) + " does not exist: use 0.." +
                     std::to_string(ranks - 1) + " or more ranks");
  }
  if (edge.weight && !(*edge.weight >= kLeastWeight && *edge.weight < 1))
    return bad_input(where + "weight " + number_text(*edge.weight) +
                     ": use the fraction of its mass that the rank gives, 0.000001 to below 1");
  return {};
}

// The edges of one rank: its destinations, with their weights (0: none).
using Outgoing = std::vector<std::pair<Rank, double>>;

// Ascending, without self-edges and repetitions.
Expected<void> clean(Outgoing& outgoing, Rank self, const std::string& path) {
  std::sort(outgoing.begin(), outgoing.end());
  outgoing.erase(std::unique(outgoing.begin(), outgoing.end()), outgoing.end());
  outgoing.erase(std::remove_if(outgoing.begin(), outgoing.end(),
                                [self](const auto& edge) { return edge.first == self; }),
                 outgoing.end());
  double given = 0;
  for (std::size_t k = 0; k < outgoing.size(); ++k) {
    given += outgoing[k].second;
    if (k == 0 || outgoing[k].first != outgoing[k - 1].first) continue;
    return bad_input(path + ": the edge from rank " + std::to_string(self) + " to rank " +
                     std::to_string(outgoing[k].first) + " has the weights " +
                     number_text(outgoing[k - 1].second) + " and " +
                     number_text(outgoing[k].second) + ": keep one of them");
  }
  if (given > 1 - kLeastWeight)
    return bad_input(path + ": rank " + std::to_string(self) + " gives away " + number_text(given) +
                     " of its mass: its weights must add up to less than 1");
  return {};
}

// The lines of a file, added one by one.
class EdgeLists {
 public:
  explicit EdgeLists(std::int32_t ranks) : outgoing_(static_cast<std::size_t>(ranks)) {}

  Expected<void> add(const EdgeLine& edge, const std::string& where) {
    const bool weighted = edge.weight.has_value();
    if (std::exchange(any_, true) && weighted != weighted_)
      return bad_input(where + "edges with and without a weight: give every edge one, or none");
    weighted_ = weighted;
    const auto from = static_cast<Rank>(edge.from), to = static_cast<Rank>(edge.to);
    outgoing_[static_cast<std::size_t>(from)].emplace_back(to, edge.weight.value_or(0));
    if (!edge.one_way)
      outgoing_[static_cast<std::size_t>(to)].emplace_back(from, edge.weight.value_or(0));
    return {};
  }

  Expected<Topology::Edges> finish(const std::string& path) && {
    Topology::Edges edges(Topology::Lists(outgoing_.size()));
    if (weighted_) edges.weights.resize(outgoing_.size());
    for (std::size_t i = 0; i < outgoing_.size(); ++i) {
      if (auto cleaned = clean(outgoing_[i], static_cast<Rank>(i), path); !cleaned)
        return cleaned.error();
      for (const auto& [to, weight] : outgoing_[i]) {
        edges.to[i].push_back(to);
        if (!edges.weights.empty()) edges.weights[i].push_back(weight);
      }
    }
    return edges;
  }

 private:
  std::vector<Outgoing> outgoing_;  // [rank]
  bool any_ = false;
  bool weighted_ = false;  // of all edges alike
};

}  // namespace

Expected<Topology::Edges> read_edge_list(const std::string& path, std::int32_t ranks) {
  std::error_code missing;
  const bool plain = std::filesystem::is_regular_file(path, missing);
  if (std::filesystem::exists(path, missing) && !plain)  // a pipe or a device may have no end
    return bad_input("cannot read the edge list '" + path + "': not a plain file");
  std::ifstream file(path);
  if (!file) return bad_input("cannot read the edge list '" + path + "': check the path");
  EdgeLists lists(ranks);
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    text = text.substr(0, text.find('#'));
    if (words_of(text).empty()) continue;
    const std::string where = path + ":" + std::to_string(line) + ": ";
    const std::optional<EdgeLine> edge = parse_edge(text);
    if (!edge)
      return bad_input(where + "not an edge: write 'i j' or 'i -> j', with or without a weight");
    if (auto valid = check_edge(*edge, where, ranks); !valid) return valid.error();
    if (auto added = lists.add(*edge, where); !added) return added.error();
  }
  if (file.bad()) return bad_input("cannot read the edge list '" + path + "'");
  return std::move(lists).finish(path);
}

}  // namespace grapevine
