#include "messages/names.hpp"

#include <algorithm>
#include <numeric>

namespace grapevine {
namespace {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      const std::size_t swap = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above + 1, row[j - 1] + 1, swap});
      diagonal = above;
    }
  }
  return row[b.size()];
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
