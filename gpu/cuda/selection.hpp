// The decisions of top-k selection, apart from the memory they are made over.
//
// An entry's key is its magnitude (31 bits), then its index, the lower the larger: keys are all
// different, and in the order in which entries are taken (the tie rule of
// algorithms/kernels/sparse_vector.hpp). A key is six digits. The k-th largest is found from the
// highest digit down: a histogram of the digit among those that share the digits so far says in
// which bin it lies and how many of that bin are still wanted. Where all of a bin are, the search
// ends: mostly after the three digits of the magnitude.
#pragma once
#include <cmath>

#include "gpu/cuda/portable.hpp"

namespace grapevine::cuda {

constexpr int kDigits = 6;
constexpr int kMostBins = 2048;

GRAPEVINE_HD constexpr int digit_shift(int digit) {
  return digit == 0   ? 52
         : digit == 1 ? 42
         : digit == 2 ? 32
         : digit == 3 ? 21
         : digit == 4 ? 10
                      : 0;
}
GRAPEVINE_HD constexpr int digit_bins(int digit) {
  return digit == 0 || digit == 3 || digit == 4 ? 2048 : 1024;
}

GRAPEVINE_HD inline std::uint64_t key_of(std::uint32_t magnitude, std::uint32_t index) {
  return std::uint64_t{magnitude} << 32 | (0xffffffffU - index);
}

GRAPEVINE_HD inline std::uint32_t digit_of(std::uint64_t key, int digit) {
  return static_cast<std::uint32_t>(key >> digit_shift(digit)) &
         static_cast<std::uint32_t>(digit_bins(digit) - 1);
}

// State of the search. In the end entries whose key is not below `prefix` are taken.
struct Search {          // without initialisers: blocks share it
  std::uint64_t prefix;  // the digits found, in their positions
  std::uint32_t wanted;  // of those that share them
  bool done;             // all of those are
};

// Whether a key shares the digits before `digit`.
GRAPEVINE_HD inline bool shares_prefix(std::uint64_t key, const Search& search, int digit) {
  return digit == 0 || (key >> digit_shift(digit - 1)) == (search.prefix >> digit_shift(digit - 1));
}

// Continues from `digit`, if the searched entry lies in bins [first, last): `above` entries lie in
// bins from `last` up. Returns whether it does.
GRAPEVINE_HD inline bool descend(Search& search, const std::uint32_t* counts, int first, int last,
                                 std::uint32_t above, int digit) {
  for (int bin = last; bin-- > first;) {
    const std::uint32_t with_bin = above + counts[bin];
    if (above < search.wanted && search.wanted <= with_bin) {
      search.prefix |= static_cast<std::uint64_t>(bin) << digit_shift(digit);
      search.wanted -= above;
      search.done = search.wanted == counts[bin];
      return true;
    }
    above = with_bin;
  }
  return false;
}

// What the search ends with where no more than k entries are not zero: these are taken.
GRAPEVINE_HD inline Search search_all() { return {key_of(1, 0xffffffffU), 0, true}; }

// The rest of an entry that was sent: nothing, but for a NaN or infinity, which must not vanish.
GRAPEVINE_HD inline float left_over(float value) { return value + -1.0F * value; }

// ---- The guess: a threshold from a sample, so that one pass over memory finds the candidates ----

constexpr std::int64_t kSamples = std::int64_t{1} << 15;

// Which entry is sample i of d < 2^32. Without a division, which takes a GPU's thread longer than
// the sample's load.
GRAPEVINE_HD inline std::uint64_t sample_position(std::uint64_t i, std::uint64_t d) {
  return (mix(0, i) >> 32) * d >> 32;
}

// A little more than k of d: the k-th magnitude of a sample is off by about its square root.
inline double with_margin(std::int64_t k, std::int64_t d) {
  const double samples = static_cast<double>(kSamples);
  const double in_sample = static_cast<double>(k) / static_cast<double>(d) * samples;
  return (in_sample + 4 * std::sqrt(in_sample) + 8) * static_cast<double>(d) / samples;
}

// Which of the sample, counted from 1 for the largest, is the guess; 0: none is made, as most
// entries would be candidates.
inline std::uint32_t sampled_rank(std::int64_t k, std::int64_t d) {
  if (d <= kSamples) return 0;
  const double rank = with_margin(k, d) / static_cast<double>(d) * static_cast<double>(kSamples);
  return rank < static_cast<double>(kSamples) ? static_cast<std::uint32_t>(rank) + 1 : 0;
}

// Room for candidates: twice as many as the guess aims at. With more the guess has missed.
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
