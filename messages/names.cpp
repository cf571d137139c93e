#include "messages/names.hpp"

#include <algorithm>

namespace grapevine {
namespace {

// Insertions, deletions, changes and swaps of neighbours (optimal string alignment): a swap is the
// commonest slip of a typist, and a short name must survive it.
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
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return table.back();
}

}  // namespace

Error unknown_name(const std::string& what, const std::string& name,
                   const std::vector<std::string>& valid) {
  std::string message = "unknown " + what + " '" + name + "'";
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(1, name.size() / 2) + 1;
  for (const std::string& candidate : valid) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  if (best != nullptr) message += ": did you mean '" + *best + "'?";
  message += best != nullptr ? " valid: " : ": valid: ";
  for (std::size_t i = 0; i < valid.size(); ++i) message += (i > 0 ? ", " : "") + valid[i];
  return bad_input(message);
}

}  // namespace grapevine
