// Names of things that cross actors. All are plain integers so that they serialize as themselves.
#pragma once
#include <cstdint>

namespace grapevine {

using Rank = std::int32_t;     // 0 .. world size - 1
using Step = std::int64_t;     // gradients a rank has consumed, from 0
using Version = std::int64_t;  // updates a model has received, from 0
using Epoch = std::int64_t;    // passes over the whole data set by all ranks together, from 0

}  // namespace grapevine
