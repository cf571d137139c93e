// Bucketed reduction: an exact sum of a vector that is given in parts, while the parts before them
// are still computed. A part: an exact reduction for each bucket.
//
// Source: Li et al. 2020, "PyTorch Distributed: Experiences on accelerating data parallel
// training", section 3.2.3: the all-reduce of the last layers overlaps the backward pass of the
// first ones. Buckets have a fixed size in bytes and are counted from the end of the flat vector,
// where a backward pass begins: the first bucket, for which it is waited after that pass, is the
// rest. Where they begin follows from the number of elements alone, so all ranks agree.
//
// On the wire: the chunks of each bucket's all-reduce, under one operation. Their indices follow
// each other: bucket b has those from P times the pieces of the buckets before it on.
// The same bits as one sum of the whole vector where the order in which an element is added up does
// not depend on its place: direct, doubling, a ring of two. In a longer ring an element's slice,
// and with it the rank at which its sum begins, is another one: the same to rounding.
// Memory: [d] for the sum, which parts are copied into as they come; nothing else is kept of them.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/collectives/reduction.hpp"

namespace grapevine {

inline constexpr std::int64_t kMostBuckets = 1024;

// Where buckets of `bytes` of a vector of d float32 begin; null: it has one, or `bytes` is 0. More
// than kMostBuckets are none: they are larger then.
PartBegins bucket_begins(std::int64_t d, std::int64_t bytes);

// As make_exact_reduction(), for vectors of d. REQUIRES: begins of at least two buckets.
std::unique_ptr<Reduction> make_bucketed_reduction(const std::vector<Rank>& ranks,
                                                   std::int32_t position, std::int64_t d,
                                                   ExactReduce algorithm, PartBegins begins);

}  // namespace grapevine
