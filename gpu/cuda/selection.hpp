// The decisions of top-k selection, apart from the memory they are made over.
//
// A magnitude (31 bits) is three digits of 11, 10 and 10 bits. The k-th largest is found from the
// highest digit down: a histogram of the digit among those that share the digits so far says in
// which bin it lies and how many of that bin are still wanted. Three histograms give it exactly,
// with any values; the tie rule is that of algorithms/kernels/sparse_vector.hpp.
#pragma once
#include <cmath>

#include "gpu/cuda/portable.hpp"

namespace grapevine::cuda {

constexpr int kDigits = 3;
constexpr int kMostBins = 2048;

GRAPEVINE_HD constexpr int digit_shift(int digit) { return digit == 0 ? 20 : digit == 1 ? 10 : 0; }
GRAPEVINE_HD constexpr int digit_bins(int digit) { return digit == 0 ? 2048 : 1024; }

GRAPEVINE_HD inline std::uint32_t digit_of(std::uint32_t magnitude, int digit) {
  return (magnitude >> digit_shift(digit)) & static_cast<std::uint32_t>(digit_bins(digit) - 1);
}

// State of the search. In the end: entries above `prefix` are taken, and `wanted` of those that
// equal it, by increasing index.
struct Search {          // without initialisers: blocks share it
  std::uint32_t prefix;  // the digits found, in their positions
  std::uint32_t wanted;  // of those that share them
  bool all;              // no more than k are not zero: everything above 0 is taken
};

// Whether a magnitude shares the digits before `digit`.
GRAPEVINE_HD inline bool shares_prefix(std::uint32_t magnitude, const Search& search, int digit) {
  return digit == 0 ||
         (magnitude >> digit_shift(digit - 1)) == (search.prefix >> digit_shift(digit - 1));
}

// Continues from `digit`, if the searched entry lies in bins [first, last): `above` entries lie in
// bins from `last` up. Returns whether it does.
GRAPEVINE_HD inline bool descend(Search& search, const std::uint32_t* counts, int first, int last,
                                 std::uint32_t above, int digit) {
  for (int bin = last; bin-- > first;) {
    const std::uint32_t with_bin = above + counts[bin];
    if (above < search.wanted && search.wanted <= with_bin) {
      search.prefix |= static_cast<std::uint32_t>(bin) << digit_shift(digit);
      search.wanted -= above;
      return true;
    }
    above = with_bin;
  }
  return false;
}

// What the search ends with where the first histogram holds no more than k: all of it is taken.
GRAPEVINE_HD inline Search search_all() { return {0, 0, true}; }

// Where an entry goes in the list of those taken, if `above` larger ones and `equal` ones of the
// threshold's size come before it by index; -1: it is not taken.
GRAPEVINE_HD inline std::int64_t list_position(std::uint32_t magnitude, const Search& search,
                                               std::uint32_t above, std::uint32_t equal) {
  const std::uint32_t ties = equal < search.wanted ? equal : search.wanted;
  if (magnitude > search.prefix) return static_cast<std::int64_t>(above) + ties;
  if (magnitude == search.prefix && equal < search.wanted)
    return static_cast<std::int64_t>(above) + equal;
  return -1;
}

// The rest of an entry that was sent: nothing, but for a NaN or infinity, which must not vanish.
GRAPEVINE_HD inline float left_over(float value) { return value + -1.0F * value; }

// ---- The guess: a threshold from a sample, so that one pass over memory finds the candidates ----

constexpr std::int64_t kSamples = std::int64_t{1} << 15;

// Which entry is sample i of d: the CPU's sequence.
GRAPEVINE_HD inline std::uint64_t sample_position(std::uint64_t i, std::uint64_t d) {
  return mix(0, i) % d;
}

// A little more than k of d: the k-th magnitude of a sample is off by about its square root.
inline double with_margin(std::int64_t k, std::int64_t d) {
  const double samples = static_cast<double>(kSamples);
  const double in_sample = static_cast<double>(k) / static_cast<double>(d) * samples;
  return (in_sample + 4 * std::sqrt(in_sample) + 8) * static_cast<double>(d) / samples;
}

// Which of the sample, counted from 1 for the largest, is the guess; 0: every entry that is not
// zero is a candidate.
inline std::uint32_t sampled_rank(std::int64_t k, std::int64_t d) {
  if (d <= kSamples) return 0;
  const double rank = with_margin(k, d) / static_cast<double>(d) * static_cast<double>(kSamples);
  return rank < static_cast<double>(kSamples) ? static_cast<std::uint32_t>(rank) + 1 : 0;
}

// Room for candidates: twice as many as the guess aims at. More, and the selection reads x again.
inline std::int64_t candidate_capacity(std::int64_t k, std::int64_t d) {
  const double wanted = 2 * with_margin(k, d);
  if (d <= kSamples || wanted >= static_cast<double>(d)) return d;
  const auto capacity = static_cast<std::int64_t>(wanted);
  return capacity < kSamples ? kSamples : capacity;
}

// Whether `found` candidates not below `floor` hold the k largest entries.
GRAPEVINE_HD inline bool candidates_suffice(std::uint64_t found, std::uint32_t floor,
                                            std::uint64_t k, std::uint64_t capacity) {
  return found <= capacity && (found >= k || floor <= 1);
}

}  // namespace grapevine::cuda
