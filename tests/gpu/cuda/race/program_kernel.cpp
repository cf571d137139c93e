#include <cuda_runtime.h>

#include "tests/gpu/cuda/race/program.hpp"

namespace racecheck {
namespace {

__device__ void execute(volatile std::uint32_t* at, Op op) {
  switch (op) {
    case Op::nothing:
      break;
    case Op::read:
      static_cast<void>(*at);
      break;
    case Op::write:
      *at = 1;
      break;
    case Op::atomic:
      atomicAdd(const_cast<std::uint32_t*>(at), 1U);
      break;
    case Op::fence:
      __threadfence();
      break;
  }
}

__global__ void interpret(const Step* steps, const Sync* syncs, std::uint32_t rounds,
                          std::uint32_t* memory) {
  __shared__ std::uint32_t shared[kVariables];
  // Two threads of each warp: 0, 1, 32, 33.
  const std::uint32_t actor = threadIdx.x / 32 * 2 + threadIdx.x % 32;
  const bool acts = threadIdx.x % 32 < 2;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const std::uint32_t at = blockIdx.x * rounds + round;
    for (std::uint32_t slot = 0; acts && slot < kSlots; ++slot) {
      const Step step = steps[(at * kActors + actor) * kSlots + slot];
      log_event({blockIdx.x, actor, round, step, Sync::none});
      execute(step.variable < kGlobals ? &memory[step.variable] : &shared[step.variable], step.op);
    }
    const Sync sync = syncs[at];
    if (acts && sync != Sync::none) log_event({blockIdx.x, actor, round, {Op::nothing, 0}, sync});
    if (sync == Sync::warp) __syncwarp();
    if (sync == Sync::block) __syncthreads();
  }
}

}  // namespace

cudaError_t run_program(const Step* steps, const Sync* syncs, std::uint32_t rounds,
                        std::uint32_t* memory) {
  cudaLaunchConfig_t config;
  config.gridDim = dim3(kProgramBlocks);
  config.blockDim = dim3(kProgramThreads);
  return cudaLaunchKernelEx(&config, interpret, steps, syncs, rounds, memory);
}

}  // namespace racecheck
