// Exact reduction: the sum of whole vectors, by the all-reduce that the wiring names, or by the one
// that suits the number of ranks and the size.
//
// Source: Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations
// in MPICH", section 4.5: short vectors in few rounds, long ones with few bytes.
//
// With P ranks, n bytes, latency a and time b of a byte, each message to its receiver alone:
//
//   ring       2 (P-1) a + 2 (P-1)/P n b     2 (P-1) messages of a rank, to one neighbour
//   direct           2 a + 2 (P-1)/P n b     2 (P-1), to all others at once
//   doubling         R (a + n b)             at most R;  R = log2 P, or floor(log2 P) + 2
//
// Direct is a ring of fewer rounds and fewer copies. Where K ranks share the link of their host, it
// sends K (P-K)/P 2 n bytes over that link, and the ring 2 (P-1)/P n: up to three ranks never more,
// with four at most 4/3 of the ring's, with eight 16/7.
//
// Doubling is no slower up to R n = c a/b, with c = 1.8 for three ranks and more than 6 for all
// other numbers (without a bound for two). a/b is 31 kB at 25 us and 10 Gbit/s, 6 kB at 50 us and
// 1 Gbit/s, 1.2 kB at 100 us and 100 Mbit/s. Where ranks share cores the number of messages counts,
// of which doubling has the fewest.
#pragma once
#include <cstdint>

#include "algorithms/compressors/settings.hpp"

namespace grapevine {

// A vector is short where the rounds of doubling carry at most so many bytes one after the other.
inline constexpr std::int64_t kMostShortBytes = 8192;
// So many ranks are few.
inline constexpr std::int32_t kFewRanks = 4;

// What adds up vectors of `bytes` among `ranks` where the wiring says `algorithm`: itself, or,
// where that is automatic, doubling for short ones, for others direct among few ranks, else the
// ring. A function of its arguments alone, which all ranks of a sum have in common: they agree
// without a message.
ExactReduce all_reduce_for(ExactReduce algorithm, std::int32_t ranks, std::int64_t bytes);

}  // namespace grapevine
