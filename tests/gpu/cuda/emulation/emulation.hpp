// What cuda_runtime.h is made of: blocks of threads on the CPU, and the memory of the device.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

// Code that a checker of memory accesses does not see: the emulation's own part of a kernel's unit.
#define EMULATION_UNCHECKED __attribute__((no_sanitize("thread")))

namespace emulation {

constexpr unsigned kLanes = 32;
constexpr std::size_t kStackBytes = std::size_t{1} << 16;

struct Launch {
  const void* kernel = nullptr;
  std::uint32_t blocks = 0, threads = 0;  // threads: of each block
};

// ---- Blocks and threads

// Refuses what a device would: sizes beyond its limits, pointer arguments to memory that is not the
// device's. cudaGetErrorString() then says what is wrong.
cudaError_t check_launch(const Launch& launch, std::initializer_list<const void*> pointers);
// Runs thread(context) once for each thread of each block. Blocks run one after another, threads in
// turns that end at barriers, both in a random order that the seed gives. Throws std::logic_error
// where threads wait at a barrier that the others of their block or warp do not reach.
cudaError_t run(const Launch& launch, void (*thread)(const void* context), const void* context);

// Of the thread that runs. The first two order memory; exchange_barrier() only lets the warp's
// values be exchanged, as CUDA's shuffles and votes do.
void block_barrier();
void warp_barrier();
void exchange_barrier();
std::uint32_t* lanes();  // a word for each lane of the warp
void fence();
void note_atomic(const void* address, std::size_t bytes, const void* return_address);
// Ends the launch with cudaErrorIllegalAddress, for the reason that the observer gives.
[[noreturn]] void abandon_launch();
// The stack of the thread that runs, [stack, stack + kStackBytes); null while none runs a kernel's
// own code.
inline const std::byte* current_stack = nullptr;
// No access of the thread is the kernel's while one of these lives.
class InRuntime {
 public:
  EMULATION_UNCHECKED InRuntime() { current_stack = nullptr; }
  EMULATION_UNCHECKED ~InRuntime() { current_stack = stack_; }
  InRuntime(const InRuntime&) = delete;
  InRuntime& operator=(const InRuntime&) = delete;

 private:
  const std::byte* const stack_ = current_stack;
};

// The order of blocks and threads follows from the seed: GRAPEVINE_EMULATION_SEED, or 1. Each test
// begins with it anew.
std::uint32_t first_seed();
void reseed(std::uint32_t seed);

// ---- Device memory

struct Allocation {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
};
// The allocation that holds [address, address + bytes) as a whole.
std::optional<Allocation> allocation_of(std::uintptr_t address, std::size_t bytes);
// What lies at an address that no allocation holds: "host memory", "memory that cudaFree took
// back".
std::string describe(std::uintptr_t address);
// Keeps `why` for cudaGetErrorString(code); returns the code.
cudaError_t fail(cudaError_t code, std::string why);

// ---- The observer

// Learns what orders the accesses of threads. Called on the stack of a kernel's thread where the
// comment says so: little space.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void launch_begins(const Launch& launch) = 0;
  virtual void block_begins(std::uint32_t block) = 0;
  // Threads [first, last) of the block have met at a barrier that orders memory.
  virtual void barrier_opens(unsigned first, unsigned last) = 0;
  // By a thread, on its stack.
  virtual void fence() = 0;
  virtual void atomic(const void* address, std::size_t bytes, const void* return_address) = 0;
  virtual void launch_ends() = 0;
  virtual std::string why_abandoned() = 0;
  virtual void freed(const Allocation& allocation) = 0;
};
inline Observer* observer = nullptr;  // none: nothing is told

}  // namespace emulation
