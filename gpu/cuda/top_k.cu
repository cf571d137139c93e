#include "gpu/cuda/top_k.hpp"

#include <cub/device/device_select.cuh>

#include <algorithm>
#include <string>
#include <type_traits>

#include "gpu/cuda/block.cuh"
#include "gpu/cuda/computed.cuh"
#include "gpu/cuda/launch.cuh"

namespace grapevine::cuda {
namespace {

constexpr int kSampleBlocks = static_cast<int>(kSamples / kThreads);

struct State {
  std::uint32_t floor;             // candidates are not below it
  std::uint32_t found;             // of them; more than the list has room for, perhaps
  std::uint32_t sampled;           // blocks that have sampled
  std::uint32_t arrived[kDigits];  // blocks that have counted the digit
  Search search;
  std::uint32_t counts[kDigits][kMostBins];
};

// The arguments of all kernels. The workspace is carved into the arrays behind the state.
struct Selection {
  float* x;
  std::uint32_t d, k;
  std::uint32_t rank;  // of the guess in the sample; 0: none is made
  bool take;
  std::uint32_t capacity;  // of the list
  State* state;
  std::uint32_t* samples;  // [kSamples], their magnitudes
  std::uint32_t* list;     // [capacity], indices of the candidates, which ascend
  void* cub;               // of cub_bytes
  std::size_t cub_bytes;

  bool guesses() const { return rank > 0; }
};

// ---- 1: the guess ----

// By the last block that has sampled. Two digits: the 10 bits of the magnitude that are left only
// let a few more in.
__device__ void guess(const Selection& s, std::uint32_t* counts) {
  __shared__ Search search;
  const volatile std::uint32_t* const samples = s.samples;
  if (threadIdx.x == 0) search = Search{0, s.rank, false};
  for (int digit = 0; digit < 2; ++digit) {
    for (int bin = static_cast<int>(threadIdx.x); bin < kMostBins; bin += kThreads) counts[bin] = 0;
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < kSamples; i += kThreads) {
      const std::uint64_t key = key_of(samples[i], 0);
      if (shares_prefix(key, search, digit)) atomicAdd(&counts[digit_of(key, digit)], 1U);
    }
    __syncthreads();
    block_descend<kThreads>(search, counts, digit);
  }
  if (threadIdx.x > 0) return;
  const auto floor = static_cast<std::uint32_t>(search.prefix >> 32);
  s.state->floor = floor > 1 ? floor : 1;
}

__global__ void __launch_bounds__(kThreads) sample(Selection s) {
  __shared__ std::uint32_t counts[kMostBins];
  __shared__ bool last;
  const std::int64_t i = thread_index();
  s.samples[i] = magnitude(s.x[sample_position(static_cast<std::uint64_t>(i), s.d)]);
  __threadfence();  // its samples are there before its arrival is
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&s.state->sampled, 1U) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  guess(s, counts);
}

// ---- 2: the candidates, in one pass over x ----

struct Position {
  __device__ std::uint32_t operator()(std::int64_t i) const {
    return static_cast<std::uint32_t>(i);
  }
};

struct IsCandidate {
  const float* x;
  const State* state;
  __device__ bool operator()(std::int64_t i) const { return magnitude(x[i]) >= state->floor; }
};

// ---- 3: the k-th largest, a digit at a time; the last block to arrive decides ----

__device__ bool has_missed(const Selection& s) {
  return s.rank > 0 && !candidates_suffice(s.state->found, s.state->floor, s.k, s.capacity);
}

// How many entries are searched, and the index of one of them.
__device__ std::int64_t searched(const Selection& s) { return s.rank > 0 ? s.state->found : s.d; }
__device__ std::uint32_t index_at(const Selection& s, std::int64_t i) {
  return s.rank > 0 ? s.list[i] : static_cast<std::uint32_t>(i);
}

__device__ void decide_digit(const Selection& s, int digit, std::uint32_t* counts) {
  __shared__ Search search;
  const volatile std::uint32_t* const all = s.state->counts[digit];
  std::uint32_t own = 0, total = 0;
  for (int bin = static_cast<int>(threadIdx.x); bin < digit_bins(digit); bin += kThreads) {
    counts[bin] = all[bin];
    own += counts[bin];
  }
  block_exclusive_sum<kThreads>(own, total);
  if (threadIdx.x == 0) search = digit == 0 ? Search{0, s.k, false} : s.state->search;
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
  const Search search = s.state->search;  // zeros before the first digit
  if (search.done || has_missed(s)) return;
  for (int bin = static_cast<int>(threadIdx.x); bin < digit_bins(digit); bin += kThreads)
    counts[bin] = 0;
  __syncthreads();
  for (std::int64_t i = thread_index(); i < searched(s); i += thread_count()) {
    const std::uint32_t index = index_at(s, i), m = magnitude(s.x[index]);
    const std::uint64_t key = key_of(m, index);
    if (m != 0 && shares_prefix(key, search, digit)) atomicAdd(&counts[digit_of(key, digit)], 1U);
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

// ---- 4: the selection ----

struct Listed {
  Selection s;
  __device__ std::uint32_t operator()(std::int64_t i) const {
    return i < searched(s) ? index_at(s, i) : 0;
  }
};

struct IsTaken {
  Selection s;
  __device__ bool operator()(std::int64_t i) const {
    if (has_missed(s) || i >= searched(s)) return false;
    const std::uint32_t index = index_at(s, i), m = magnitude(s.x[index]);
    return m != 0 && key_of(m, index) >= s.state->search.prefix;
  }
};

__global__ void __launch_bounds__(kThreads)
    finish(Selection s, const std::uint32_t* indices, float* values, std::uint32_t* count) {
  if (has_missed(s)) {
    if (thread_index() == 0) *count = kMissed;
    return;
  }
  for (std::int64_t i = thread_index(); i < *count; i += thread_count()) {
    const float value = s.x[indices[i]];
    values[i] = value;
    if (s.take) s.x[indices[i]] = left_over(value);
  }
}

// ---- the launches ----

// cub's two-phase calls: with no workspace they say how much they need.
cudaError_t select_candidates(const Selection& s, void* workspace, std::size_t& bytes,
                              cudaStream_t stream) {
  std::uint32_t* const found = s.state == nullptr ? nullptr : &s.state->found;
  return cub::DeviceSelect::Flagged(workspace, bytes, Computed<std::uint32_t, Position>{{}},
                                    Computed<bool, IsCandidate>{{s.x, s.state}},
                                    Bounded<std::uint32_t>{s.list, s.capacity}, found,
                                    static_cast<std::int64_t>(s.d), stream);
}
cudaError_t select_taken(const Selection& s, std::uint32_t* indices, std::uint32_t* count,
                         void* workspace, std::size_t& bytes, cudaStream_t stream) {
  return cub::DeviceSelect::Flagged(
      workspace, bytes, Computed<std::uint32_t, Listed>{{s}}, Computed<bool, IsTaken>{{s}}, indices,
      count, static_cast<std::int64_t>(s.guesses() ? s.capacity : s.d), stream);
}

// Carves the arrays from `memory`, each on 16 bytes; returns the bytes that they take.
Expected<std::size_t> carve(Selection& s, void* memory) {
  std::size_t used = 0;
  const auto take = [&](auto*& array, std::size_t bytes) {
    // Without memory only the sizes count.
    array = memory == nullptr ? nullptr
                              : reinterpret_cast<std::remove_reference_t<decltype(array)>>(
                                    static_cast<unsigned char*>(memory) + used);
    used += (bytes + 15) / 16 * 16;
  };
  std::size_t of_candidates = 0, of_taken = 0;
  if (auto asked = check(select_candidates(s, nullptr, of_candidates, nullptr), "top_k"); !asked)
    return asked.error();
  if (auto asked = check(select_taken(s, nullptr, nullptr, nullptr, of_taken, nullptr), "top_k");
      !asked)
    return asked.error();
  take(s.state, sizeof *s.state);
  take(s.samples, static_cast<std::size_t>(kSamples) * sizeof *s.samples);
  take(s.list, std::size_t{s.capacity} * sizeof *s.list);
  unsigned char* cub = nullptr;
  s.cub_bytes = std::max(of_candidates, of_taken);
  take(cub, s.cub_bytes);
  s.cub = cub;
  return used;
}

Selection selection_of(std::int64_t d, std::int64_t k, Candidates candidates) {
  Selection s{};
  s.d = static_cast<std::uint32_t>(d);
  s.k = static_cast<std::uint32_t>(std::min(k, d));
  s.rank = candidates == Candidates::guessed ? sampled_rank(s.k, d) : 0;
  s.capacity = s.guesses() ? static_cast<std::uint32_t>(candidate_capacity(s.k, d)) : 0;
  return s;
}

Expected<void> find_candidates(const Selection& s, cudaStream_t stream) {
  if (auto guessed = launch("top_k", sample, kSampleBlocks, kThreads, stream, s); !guessed)
    return guessed;
  std::size_t bytes = s.cub_bytes;
  return check(select_candidates(s, s.cub, bytes, stream), "top_k");
}

Expected<void> launch_all(const Selection& s, std::uint32_t* indices, float* values,
                          std::uint32_t* count, cudaStream_t stream) {
  const auto to_search = blocks_for(s.guesses() ? s.capacity : s.d), to_finish = blocks_for(s.k);
  if (!to_search) return to_search.error();
  if (!to_finish) return to_finish.error();
  Chain search("top_k", stream);
  search.zero(s.state, sizeof *s.state);
  if (!search.result()) return search.result();
  if (s.guesses())
    if (auto found = find_candidates(s, stream); !found) return found;
  for (int digit = 0; digit < kDigits; ++digit)
    search.then(count_digit, *to_search, kThreads, s, digit);
  if (!search.result()) return search.result();
  std::size_t bytes = s.cub_bytes;
  if (auto taken = check(select_taken(s, indices, count, s.cub, bytes, stream), "top_k"); !taken)
    return taken;
  return launch("top_k", finish, *to_finish, kThreads, stream, s, indices, values, count);
}

}  // namespace

Expected<std::size_t> top_k_workspace_bytes(std::int64_t d, std::int64_t k) {
  std::size_t most = 0;
  for (const Candidates candidates : {Candidates::guessed, Candidates::all}) {
    Selection s = selection_of(d, k, candidates);
    const auto bytes = carve(s, nullptr);
    if (!bytes) return bytes.error();
    most = std::max(most, *bytes);
  }
  return most;
}

Expected<void> top_k(std::uint32_t* indices, float* values, std::uint32_t* count, float* x,
                     bool take, std::int64_t d, std::int64_t k, Candidates candidates,
                     void* workspace, cudaStream_t stream) {
  if (d < 0 || k < 0 || d > std::int64_t{0xffffffff})
    return refused("top_k", std::to_string(k) + " of " + std::to_string(d) + " entries");
  if (std::min(k, d) == 0) return check(cudaMemsetAsync(count, 0, sizeof *count, stream), "top_k");
  Selection s = selection_of(d, k, candidates);
  if (auto carved = carve(s, workspace); !carved) return carved.error();
  s.x = x;
  s.take = take;
  return launch_all(s, indices, values, count, stream);
}

}  // namespace grapevine::cuda
