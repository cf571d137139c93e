# Flaws that the race checker must find: mutant(<name> <kernel> <file> <text> <replacement>) takes
# something away from a copy of a shipped file; several of one name make one mutant together. The
# kernel is where the checker must find it. The text must occur exactly once.
mutant(unchanged "" top_k.cu "kSampleBlocks = static_cast<int>(kSamples / kThreads)"
       "kSampleBlocks = static_cast<int>(kSamples / kThreads + 0)")

mutant(shared_histogram_without_atomic count_digit top_k.cu
       "if (m != 0 && shares_prefix(key, search, digit)) atomicAdd(&counts[digit_of(key, digit)], 1U)"
       "if (m != 0 && shares_prefix(key, search, digit)) ++counts[digit_of(key, digit)]")
mutant(global_histogram_without_atomic count_digit top_k.cu
       "atomicAdd(&s.state->counts[digit][bin], counts[bin]);"
       "s.state->counts[digit][bin] += counts[bin];")
mutant(no_barrier_before_descent sample block.cuh
       "  __syncthreads();  // all have read it\n" "")
mutant(no_fence_after_sampling sample top_k.cu
       "  __threadfence();  // its samples are there before its arrival is\n" "")
mutant(no_barrier_after_sampling sample top_k.cu
       "its samples are there before its arrival is\n  __syncthreads();\n" "\n")
mutant(no_barrier_in_the_guess sample top_k.cu
       "    __syncthreads();\n    block_descend<kThreads>(search, counts, digit);\n"
       "    block_descend<kThreads>(search, counts, digit);\n")
mutant(no_fences count_digit top_k.cu
       "  __threadfence();  // its counts are there before its arrival is\n" "")
mutant(no_fences count_digit top_k.cu
       "  if (!last) return;\n  __threadfence();\n  decide_digit" "  if (!last) return;\n  decide_digit")
mutant(no_fence_before_arrival count_digit top_k.cu
       "  __threadfence();  // its counts are there before its arrival is\n" "")
mutant(no_fence_after_arrival count_digit top_k.cu
       "  if (!last) return;\n  __threadfence();\n  decide_digit" "  if (!last) return;\n  decide_digit")
# Its counting moves from before the arrival to after it.
mutant(arrival_before_counting count_digit top_k.cu
"    counts[bin] = 0;
  __syncthreads();
  for (std::int64_t i = thread_index(); i < searched(s);"
"    counts[bin] = 0;
  __syncthreads();
  const auto add_counts = [&] {
    for (int bin = static_cast<int>(threadIdx.x); bin < digit_bins(digit); bin += kThreads)
      if (counts[bin] != 0) atomicAdd(&s.state->counts[digit][bin], counts[bin] + 0);
  };
  for (std::int64_t i = thread_index(); i < searched(s);")
mutant(arrival_before_counting count_digit top_k.cu
"  for (int bin = static_cast<int>(threadIdx.x); bin < digit_bins(digit); bin += kThreads)
    if (counts[bin] != 0) atomicAdd(&s.state->counts[digit][bin], counts[bin]);
" "")
mutant(arrival_before_counting count_digit top_k.cu
       "s.state->arrived[digit], 1U) == gridDim.x - 1;\n"
       "s.state->arrived[digit], 1U) == gridDim.x - 1;\n  add_counts();\n")
mutant(no_barrier_before_arrival count_digit top_k.cu
       "its counts are there before its arrival is\n  __syncthreads();\n" "\n")
