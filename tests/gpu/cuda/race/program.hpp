// Random programs of a few threads, for the checker's test against an oracle.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

namespace racecheck {

enum class Op : std::uint32_t { nothing, read, write, atomic, fence };
enum class Sync : std::uint32_t { none, warp, block };

constexpr std::uint32_t kProgramBlocks = 3;
constexpr std::uint32_t kProgramThreads = 34;          // of a block, in two warps
constexpr std::uint32_t kActors = 4;                   // of a block: the threads that do something
constexpr std::uint32_t kSlots = 2;                    // operations of an actor in a round
constexpr std::uint32_t kGlobals = 2, kVariables = 3;  // the others are shared

struct Step {
  Op op;
  std::uint32_t variable;
};
// In each round each actor does its steps, then all threads of a block meet where its sync says.
struct Program {
  std::uint32_t rounds = 0;
  std::vector<Step> steps;  // [blocks][rounds][actors][slots]
  std::vector<Sync> syncs;  // [blocks][rounds]
};

// Runs it. `steps` and `syncs` are the program's and `memory` its global variables, on the device.
cudaError_t run_program(const Step* steps, const Sync* syncs, std::uint32_t rounds,
                        std::uint32_t* memory);

// What an actor does next, as the kernel tells it.
struct Event {
  std::uint32_t block, actor, round;
  Step step;
  Sync sync;  // none for a step
};
void log_event(const Event& event);

}  // namespace racecheck
