# Flaws that the race checker must find: mutant(<name> <kernel> <file> <text> <replacement>) takes
# something away from a copy of a shipped file; several of one name make one mutant together. The
# kernel is where the checker must find it. The text must occur exactly once.
# So few threads in the scan that it goes round its loop.
mutant(unchanged "" top_k.cu "kScanThreads = 1024" "kScanThreads = 8")

mutant(shared_histogram_without_atomic count_digit top_k.cu
       "atomicAdd(&counts[digit_of(m, digit)], 1U)" "++counts[digit_of(m, digit)]")
mutant(global_histogram_without_atomic count_digit top_k.cu
       "atomicAdd(&s.state->counts[digit][bin], counts[bin]);"
       "s.state->counts[digit][bin] += counts[bin];")
mutant(no_barrier_after_begin collect top_k.cu
       "    __syncthreads();  // the next tile's is written after the barriers of its scan\n" "")
mutant(no_barrier_after_scan scan_tiles top_k.cu "kScanThreads = 1024" "kScanThreads = 8")
mutant(no_barrier_after_scan scan_tiles block.cuh
       "  __syncthreads();  // the storage is used again\n" "")
mutant(no_barrier_before_descent guess block.cuh
       "  __syncthreads();  // all have read it\n" "")
mutant(no_fences count_digit top_k.cu
       "  __threadfence();  // its counts are there before its arrival is\n" "")
mutant(no_fences count_digit top_k.cu
       "  if (!last) return;\n  __threadfence();\n" "  if (!last) return;\n")
mutant(no_fence_before_arrival count_digit top_k.cu
       "  __threadfence();  // its counts are there before its arrival is\n" "")
mutant(no_fence_after_arrival count_digit top_k.cu
       "  if (!last) return;\n  __threadfence();\n" "  if (!last) return;\n")
# Its counting moves from before the arrival to after it.
mutant(arrival_before_counting count_digit top_k.cu
"    counts[bin] = 0;
  __syncthreads();
  for (std::int64_t i = thread_index(); i < n;"
"    counts[bin] = 0;
  __syncthreads();
  const auto add_counts = [&] {
    for (int bin = static_cast<int>(threadIdx.x); bin < digit_bins(digit); bin += kThreads)
      if (counts[bin] != 0) atomicAdd(&s.state->counts[digit][bin], counts[bin] + 0);
  };
  for (std::int64_t i = thread_index(); i < n;")
mutant(arrival_before_counting count_digit top_k.cu
"  for (int bin = static_cast<int>(threadIdx.x); bin < digit_bins(digit); bin += kThreads)
    if (counts[bin] != 0) atomicAdd(&s.state->counts[digit][bin], counts[bin]);
" "")
mutant(arrival_before_counting count_digit top_k.cu
       "== gridDim.x - 1;\n" "== gridDim.x - 1;\n  add_counts();\n")
mutant(no_barrier_before_arrival count_digit top_k.cu
       "its counts are there before its arrival is\n  __syncthreads();\n" "\n")
