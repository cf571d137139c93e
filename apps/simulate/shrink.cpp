#include "apps/simulate/shrink.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace grapevine {
namespace {

// Without those of [begin, end).
std::vector<Fault> without(const std::vector<Fault>& faults, std::size_t begin, std::size_t end) {
  std::vector<Fault> rest(faults.begin(), faults.begin() + static_cast<std::ptrdiff_t>(begin));
  rest.insert(rest.end(), faults.begin() + static_cast<std::ptrdiff_t>(end), faults.end());
  return without_orphans(std::move(rest));
}

std::vector<Fault> shrink_faults(std::vector<Fault> faults,
                                 const std::function<bool(const std::vector<Fault>&)>& fails) {
  if (!faults.empty() && fails({})) return {};
  for (std::size_t pieces = 2; faults.size() >= 2;) {
    pieces = std::min(pieces, faults.size());
    const std::size_t length = (faults.size() + pieces - 1) / pieces;
    bool smaller = false;
    for (std::size_t begin = 0; begin < faults.size() && !smaller; begin += length) {
      std::vector<Fault> rest = without(faults, begin, std::min(begin + length, faults.size()));
      smaller = !rest.empty() && fails(rest);
      if (smaller) faults = std::move(rest);
    }
    if (smaller) {
      pieces = std::max<std::size_t>(2, pieces - 1);
    } else {
      if (length == 1) break;
      pieces *= 2;
    }
  }
  return faults;
}

}  // namespace

// Joins are kept: they are part of the run, not faults.
std::vector<Fault> shrink(std::vector<Fault> faults,
                          const std::function<bool(const std::vector<Fault>&)>& fails) {
  const auto first_fault =
      std::stable_partition(faults.begin(), faults.end(),
                            [](const Fault& fault) { return fault.kind == Fault::Kind::join; });
  const std::vector<Fault> joins(faults.begin(), first_fault);
  const auto with_joins = [&joins](const std::vector<Fault>& rest) {
    std::vector<Fault> all = joins;
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  };
  return with_joins(shrink_faults({first_fault, faults.end()}, [&](const std::vector<Fault>& rest) {
    return fails(with_joins(rest));
  }));
}

}  // namespace grapevine
