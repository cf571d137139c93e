#include "messages/text/nearest_name.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace grapevine {
namespace {

constexpr std::size_t kLeastPrefix = 3;

std::string without_dashes(const std::string& name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

// People seldom miss the first letter: another one there counts twice ("tpu" is not "cpu").
std::size_t cost_of_change(const std::string& a, const std::string& b, std::size_t i,
                           std::size_t j) {
  if (a[i] == b[j]) return 0;
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return i == 0 && j == 0 && lower(a[i]) != lower(b[j]) ? 2 : 1;
}

// Optimal string alignment: a swap is the commonest slip of a typist, and a short name must survive
// it.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> table((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& {
    return table[i * width + j];
  };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = cost_of_change(a, b, i - 1, j - 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return table.back();
}

// How often each letter is in a name.
using Letters = std::array<std::size_t, 256>;

Letters letters_of(const std::string& name) {
  Letters letters{};
  for (const char c : name) ++letters[static_cast<unsigned char>(c)];
  return letters;
}

// The letters that two names do not share take a slip each, wherever they are: no edit distance is
// smaller, and this is quickly counted. By value: those of `b` are taken from `of_a`.
std::size_t least_slips(const std::string& a, Letters of_a, const std::string& b) {
  std::size_t shared = 0;
  for (const char c : b) {
    std::size_t& left = of_a[static_cast<unsigned char>(c)];
    if (left == 0) continue;
    --left;
    ++shared;
  }
  return std::max(a.size(), b.size()) - shared;
}

// At most half of what was typed behind the group that both are in ("wiring.").
std::size_t most_slips(const std::string& typed, const std::string& other) {
  const std::size_t dot = typed.rfind('.');
  const std::size_t group = dot == std::string::npos ? 0 : dot + 1;
  const bool shared = other.compare(0, group, typed, 0, group) == 0;
  return std::max<std::size_t>(1, (typed.size() - (shared ? group : 0)) / 2);
}

}  // namespace

std::optional<std::string> nearest_name(const std::string& name,
                                        const std::vector<std::string>& valid) {
  const std::string typed = without_dashes(name);
  const std::string* best = nullptr;
  for (const std::string& candidate : valid) {
    const bool begins =
        typed.size() >= kLeastPrefix && without_dashes(candidate).rfind(typed, 0) == 0;
    if (begins && (best == nullptr || candidate.size() < best->size())) best = &candidate;
  }
  if (best != nullptr) return *best;
  const Letters letters = letters_of(typed);
  std::size_t best_distance = std::max<std::size_t>(1, typed.size() / 2) + 1;
  for (const std::string& candidate : valid) {
    const std::string other = without_dashes(candidate);
    // Most names are too far away; no table for one of a mebibyte.
    if (least_slips(typed, letters, other) >= best_distance) continue;
    const std::size_t distance = edit_distance(typed, other);
    if (distance >= best_distance || distance > most_slips(typed, other)) continue;
    best = &candidate;
    best_distance = distance;
  }
  return best != nullptr ? std::optional<std::string>(*best) : std::nullopt;
}

}  // namespace grapevine
