#include "gpu/cuda/top_k.hpp"

#include <string>
#include <type_traits>

#include "gpu/cuda/block.cuh"
#include "gpu/cuda/launch.cuh"

namespace grapevine::cuda {
namespace {

constexpr int kGuessThreads = 1024;
constexpr int kScanThreads = 1024;
// A tile: what a block looks at in one go, in kGroups coalesced groups of a float4 for each thread.
constexpr int kGroups = 4;
constexpr std::int64_t kTile = std::int64_t{kThreads} * 4 * kGroups;
static_assert(4 * kThreads < 1 << 16, "a group's hits are counted in 16 bits");

struct State {
  std::uint32_t floor;             // candidates are not below it
  std::uint32_t found;             // of them; more than the list has room for, perhaps
  std::uint32_t arrived[kDigits];  // blocks that have counted the digit
  Search search;
  std::uint32_t counts[kDigits][kMostBins];
};

// Where the candidates of a tile lie in the list, in the order of their indices.
struct Segment {
  std::uint32_t begin, size;
};

// The arguments of all kernels. The workspace is carved into the arrays behind the state.
struct Selection {
  float* x;
  std::uint32_t d, k;
  std::uint32_t rank;  // of the guess in the sample; 0: none is made
  bool vectors, take;
  std::uint32_t capacity, tiles;
  State* state;
  std::uint32_t* indices;  // [capacity], the list of candidates
  float* values;           // [capacity]
  Segment* segments;       // [tiles], of the list
  std::uint64_t* before;   // [tiles]: above << 32 | equal, in the tile, then before it
};

// Entries of one tile, of x or of the list.
struct Entries {
  const float* values;
  const std::uint32_t* indices;  // null: the position is the index
  std::uint32_t begin, end;
};

__device__ bool reads_list(const Selection& s) {
  return candidates_suffice(s.state->found, s.state->floor, s.k, s.capacity);
}

__device__ Entries tile_entries(const Selection& s, bool list, std::uint32_t tile) {
  if (list) {
    const Segment segment = s.segments[tile];
    return {s.values, s.indices, segment.begin, segment.begin + segment.size};
  }
  const std::int64_t begin = tile * kTile, end = min(begin + kTile, std::int64_t{s.d});
  return {s.x, nullptr, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
}

// ---- 1: the guess, by one block ----

__global__ void __launch_bounds__(kGuessThreads) guess(Selection s) {
  constexpr int kEach = static_cast<int>(kSamples / kGuessThreads);
  __shared__ std::uint32_t counts[kMostBins];
  __shared__ Search search;
  if (threadIdx.x == 0) search = Search{0, s.rank, false};
  if (s.rank > 0) {
    std::uint32_t sample[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      sample[i] = magnitude(
          s.x[sample_position(static_cast<std::uint64_t>(i) * kGuessThreads + threadIdx.x, s.d)]);
    // Two digits: the 10 bits that are left only let a few more in.
    for (int digit = 0; digit < 2; ++digit) {
      for (int bin = static_cast<int>(threadIdx.x); bin < kMostBins; bin += kGuessThreads)
        counts[bin] = 0;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (shares_prefix(sample[i], search, digit))
          atomicAdd(&counts[digit_of(sample[i], digit)], 1U);
      __syncthreads();
      block_descend<kGuessThreads>(search, counts, digit);
    }
  }
  if (threadIdx.x == 0) {
    s.state->floor = s.rank > 0 && search.prefix > 1 ? search.prefix : 1;
    s.state->search = Search{0, s.k, false};
  }
}

// ---- 2: the candidates, in one pass over x ----

// x[i, i+4), 0 beyond the end: no candidate.
__device__ void load_group(const Selection& s, std::int64_t i, float (&value)[4]) {
  if (s.vectors && i + 4 <= s.d) {
    const float4 v = *reinterpret_cast<const float4*>(s.x + i);
    value[0] = v.x, value[1] = v.y, value[2] = v.z, value[3] = v.w;
    return;
  }
  for (int lane = 0; lane < 4; ++lane) value[lane] = i + lane < s.d ? s.x[i + lane] : 0.0F;
}

__global__ void __launch_bounds__(kThreads) collect(Selection s) {
  __shared__ std::uint32_t begin;
  const std::uint32_t floor = s.state->floor;
  for (std::uint32_t tile = blockIdx.x; tile < s.tiles; tile += gridDim.x) {
    const std::int64_t first = tile * kTile + 4 * threadIdx.x;
    float value[kGroups][4];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) load_group(s, first + g * (kTile / kGroups), value[g]);

    // Hits of the four groups, 16 bits each: one scan gives all their positions.
    std::uint64_t hits = 0, total = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int lane = 0; lane < 4; ++lane)
        hits += static_cast<std::uint64_t>(magnitude(value[g][lane]) >= floor) << (16 * g);
    const std::uint64_t before = block_exclusive_sum<kThreads>(hits, total);
    const auto in_group = [](std::uint64_t packed, int g) {
      return static_cast<std::uint32_t>(packed >> (16 * g)) & 0xffffU;
    };
    if (threadIdx.x == 0) {
      std::uint32_t size = 0;
      for (int g = 0; g < kGroups; ++g) size += in_group(total, g);
      begin = size > 0 ? atomicAdd(&s.state->found, size) : 0;
      s.segments[tile] = {begin, size};
    }
    __syncthreads();  // the next tile's is written after the barriers of its scan
    std::uint32_t group_begin = begin;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      std::uint32_t at = group_begin + in_group(before, g);
      for (int lane = 0; lane < 4; ++lane) {
        if (magnitude(value[g][lane]) < floor) continue;
        if (at < s.capacity) {
          s.indices[at] = static_cast<std::uint32_t>(first + g * (kTile / kGroups) + lane);
          s.values[at] = value[g][lane];
        }
        ++at;
      }
      group_begin += in_group(total, g);
    }
  }
}

// ---- 3: the k-th largest, a digit at a time; the last block to arrive decides ----

__device__ void decide_digit(const Selection& s, int digit, std::uint32_t* counts) {
  __shared__ Search search;
  const volatile std::uint32_t* const all = s.state->counts[digit];
  std::uint32_t own = 0, total = 0;
  for (int bin = static_cast<int>(threadIdx.x); bin < digit_bins(digit); bin += kThreads) {
    counts[bin] = all[bin];
    own += counts[bin];
  }
  block_exclusive_sum<kThreads>(own, total);
  if (threadIdx.x == 0) search = s.state->search;
  __syncthreads();
  if (digit == 0 && total <= s.k) {
    if (threadIdx.x == 0) s.state->search = search_all();
    return;
  }
  block_descend<kThreads>(search, counts, digit);
  if (threadIdx.x == 0) s.state->search = search;
}

__global__ void __launch_bounds__(kThreads) count_digit(Selection s, int digit) {
  __shared__ std::uint32_t counts[kMostBins];
  __shared__ bool last;
  const Search search = s.state->search;
  if (search.all) return;
  const bool list = reads_list(s);
  const float* const values = list ? s.values : s.x;
  const std::int64_t n = list ? s.state->found : s.d;
  for (int bin = static_cast<int>(threadIdx.x); bin < digit_bins(digit); bin += kThreads)
    counts[bin] = 0;
  __syncthreads();
  for (std::int64_t i = thread_index(); i < n; i += thread_count()) {
    const std::uint32_t m = magnitude(values[i]);
    if (m != 0 && shares_prefix(m, search, digit)) atomicAdd(&counts[digit_of(m, digit)], 1U);
  }
  __syncthreads();
  for (int bin = static_cast<int>(threadIdx.x); bin < digit_bins(digit); bin += kThreads)
    if (counts[bin] != 0) atomicAdd(&s.state->counts[digit][bin], counts[bin]);
  __threadfence();  // its counts are there before its arrival is
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&s.state->arrived[digit], 1U) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  decide_digit(s, digit, counts);
}

// ---- 4: how many of each tile, how many before each, and the sweep; a warp for each tile ----

__device__ std::uint32_t warp_index() { return static_cast<std::uint32_t>(thread_index() / kWarp); }
__device__ std::uint32_t warp_count() { return static_cast<std::uint32_t>(thread_count() / kWarp); }

// The lanes of a warp whose entries are above and at the threshold.
struct Votes {
  unsigned above, equal;
};
__device__ Votes vote(bool valid, std::uint32_t m, const Search& search) {
  return {__ballot_sync(kAllLanes, valid && m > search.prefix),
          __ballot_sync(kAllLanes, valid && m == search.prefix)};
}
__device__ std::uint32_t ones(unsigned mask) { return static_cast<std::uint32_t>(__popc(mask)); }

__global__ void __launch_bounds__(kThreads) tally(Selection s) {
  const Search search = s.state->search;
  const bool list = reads_list(s);
  for (std::uint32_t tile = warp_index(); tile < s.tiles; tile += warp_count()) {
    const Entries e = tile_entries(s, list, tile);
    std::uint32_t above = 0, equal = 0;
    for (std::int64_t base = e.begin; base < e.end; base += kWarp) {
      const std::int64_t i = base + lane_index();
      const bool valid = i < e.end;
      const Votes votes = vote(valid, valid ? magnitude(e.values[i]) : 0, search);
      above += ones(votes.above);
      equal += ones(votes.equal);
    }
    if (lane_index() == 0) s.before[tile] = std::uint64_t{above} << 32 | equal;
  }
}

__global__ void __launch_bounds__(kScanThreads) scan_tiles(Selection s, std::uint32_t* count) {
  std::uint64_t before_all = 0;
  for (std::uint32_t first = 0; first < s.tiles; first += kScanThreads) {
    const std::uint32_t tile = first + threadIdx.x;
    std::uint64_t total = 0;
    const std::uint64_t own = tile < s.tiles ? s.before[tile] : 0;
    const std::uint64_t before = block_exclusive_sum<kScanThreads>(own, total);
    if (tile < s.tiles) s.before[tile] = before_all + before;
    before_all += total;
  }
  if (threadIdx.x > 0) return;
  const std::uint32_t wanted = s.state->search.wanted;
  *count = static_cast<std::uint32_t>(before_all >> 32) +
           min(static_cast<std::uint32_t>(before_all), wanted);
}

__global__ void __launch_bounds__(kThreads)
    sweep(Selection s, std::uint32_t* indices, float* values) {
  const Search search = s.state->search;
  const bool list = reads_list(s);
  for (std::uint32_t tile = warp_index(); tile < s.tiles; tile += warp_count()) {
    const Entries e = tile_entries(s, list, tile);
    auto above = static_cast<std::uint32_t>(s.before[tile] >> 32);
    auto equal = static_cast<std::uint32_t>(s.before[tile]);
    for (std::int64_t base = e.begin; base < e.end; base += kWarp) {
      const std::int64_t i = base + lane_index();
      const bool valid = i < e.end;
      const float value = valid ? e.values[i] : 0.0F;
      const std::uint32_t m = magnitude(value);
      const Votes votes = vote(valid, m, search);
      const std::int64_t at = list_position(m, search, above + ones(votes.above & lanes_before()),
                                            equal + ones(votes.equal & lanes_before()));
      if (valid && at >= 0) {
        const std::uint32_t index = list ? e.indices[i] : static_cast<std::uint32_t>(i);
        indices[at] = index;
        values[at] = value;
        if (s.take) s.x[index] = left_over(value);
      }
      above += ones(votes.above);
      equal += ones(votes.equal);
    }
  }
}

// ---- the launches ----

std::int64_t tiles_of(std::int64_t d) { return (d + kTile - 1) / kTile; }

// Carves the arrays from `memory`, each on 16 bytes; returns the bytes that they take.
std::size_t carve(Selection& s, std::int64_t d, std::int64_t k, void* memory) {
  std::size_t used = 0;
  const auto take = [&](auto*& array, std::int64_t size) {
    using Element = std::remove_reference_t<decltype(*array)>;
    // Without memory only the sizes count.
    array = memory == nullptr
                ? nullptr
                : reinterpret_cast<Element*>(static_cast<unsigned char*>(memory) + used);
    used += (static_cast<std::size_t>(size) * sizeof(Element) + 15) / 16 * 16;
  };
  s.capacity = static_cast<std::uint32_t>(candidate_capacity(k, d));
  s.tiles = static_cast<std::uint32_t>(tiles_of(d));
  take(s.state, 1);
  take(s.indices, s.capacity);
  take(s.values, s.capacity);
  take(s.segments, s.tiles);
  take(s.before, s.tiles);
  return used;
}

Expected<void> launch_all(const Selection& s, std::uint32_t* indices, float* values,
                          std::uint32_t* count, cudaStream_t stream) {
  const auto by_block = blocks_for(std::int64_t{s.tiles} * kThreads);
  const auto by_warp = blocks_for(std::int64_t{s.tiles} * kWarp);
  if (!by_block) return by_block.error();
  if (!by_warp) return by_warp.error();
  return Chain("top_k", stream)
      .zero(s.state, sizeof *s.state)
      .then(guess, 1, kGuessThreads, s)
      .then(collect, *by_block, kThreads, s)
      .then(count_digit, *by_block, kThreads, s, 0)
      .then(count_digit, *by_block, kThreads, s, 1)
      .then(count_digit, *by_block, kThreads, s, 2)
      .then(tally, *by_warp, kThreads, s)
      .then(scan_tiles, 1, kScanThreads, s, count)
      .then(sweep, *by_warp, kThreads, s, indices, values)
      .result();
}

}  // namespace

std::size_t top_k_workspace_bytes(std::int64_t d, std::int64_t k) {
  Selection s{};
  return carve(s, d, k < d ? k : d, nullptr);
}

Expected<void> top_k(std::uint32_t* indices, float* values, std::uint32_t* count, float* x,
                     bool take, std::int64_t d, std::int64_t k, void* workspace,
                     cudaStream_t stream) {
  if (d < 0 || k < 0 || d > std::int64_t{0xffffffff})
    return refused("top_k", std::to_string(k) + " of " + std::to_string(d) + " entries");
  k = k < d ? k : d;
  if (k == 0) return check(cudaMemsetAsync(count, 0, sizeof *count, stream), "top_k");
  Selection s{};
  carve(s, d, k, workspace);
  s.x = x;
  s.d = static_cast<std::uint32_t>(d);
  s.k = static_cast<std::uint32_t>(k);
  s.rank = sampled_rank(k, d);
  s.vectors = aligned({x});
  s.take = take;
  return launch_all(s, indices, values, count, stream);
}

}  // namespace grapevine::cuda
