#include "tests/gpu/cuda/emulation/emulation.hpp"

#include <cuda_runtime.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace emulation {
namespace {

constexpr std::uint32_t kMostThreads = 1024;  // of a block
constexpr std::uint32_t kMostBlocks = 0x7fffffff;

enum class Waits { no, exchange, warp, block, ended };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};
  Waits waits = Waits::no;
};

// One block's threads, in a different order after each barrier: what one of them needs of another
// without a barrier between shows as a wrong result.
class Block {
 public:
  // Returns whether all threads came to their end.
  bool run(unsigned threads, void (*thread)(const void*), const void* context) {
    thread_ = thread;
    context_ = context;
    while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>());
    live_ = threads;
    abandoned_ = false;
    lanes_.assign(threads + kLanes, 0);
    order_.resize(threads);
    for (unsigned i = 0; i < threads; ++i) start(order_[i] = i);
    while (live_ > 0 && !abandoned_) turn();
    return !abandoned_;
  }

  void wait(Waits what) {
    Fiber& fiber = *fibers_[threadIdx.x];
    fiber.waits = what;
    swapcontext(&fiber.context, &scheduler_);
  }
  [[noreturn]] void abandon() {
    abandoned_ = true;
    wait(Waits::ended);
    std::abort();  // nobody continues this fiber
  }
  std::uint32_t* lanes() { return &lanes_[threadIdx.x / kLanes * kLanes]; }
  std::mt19937& chance() { return chance_; }

 private:
  static void enter();

  void start(unsigned index) {
    Fiber& fiber = *fibers_[index];
    fiber.waits = Waits::no;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler_;
    makecontext(&fiber.context, &Block::enter, 0);
  }

  // Runs every fiber that can to its next barrier, then opens the barriers that are complete.
  void turn() {
    std::shuffle(order_.begin(), order_.end(), chance_);
    bool ran = false;
    for (const unsigned index : order_) {
      Fiber& fiber = *fibers_[index];
      if (fiber.waits != Waits::no) continue;
      ran = true;
      threadIdx.x = index;
      current_stack = fiber.stack.get();
      swapcontext(&scheduler_, &fiber.context);
      current_stack = nullptr;
      if (abandoned_) return;
      if (fiber.waits == Waits::ended) --live_;
    }
    if (!ran && live_ > 0)
      throw std::logic_error("a barrier that not all threads of its block or warp reach");
    open();
  }

  void open() {
    const auto threads = static_cast<unsigned>(order_.size());
    for (unsigned first = 0; first < threads; first += kLanes) {
      open_if_all(first, std::min(threads, first + kLanes), Waits::exchange);
      open_if_all(first, std::min(threads, first + kLanes), Waits::warp);
    }
    open_if_all(0, threads, Waits::block);
  }

  void open_if_all(unsigned first, unsigned last, Waits what) {
    for (unsigned i = first; i < last; ++i)
      if (fibers_[i]->waits != what) return;
    for (unsigned i = first; i < last; ++i) fibers_[i]->waits = Waits::no;
    if (observer != nullptr && what != Waits::exchange) observer->barrier_opens(first, last);
  }

  void (*thread_)(const void*) = nullptr;
  const void* context_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<unsigned> order_;
  std::vector<std::uint32_t> lanes_;
  unsigned live_ = 0;
  bool abandoned_ = false;
  std::mt19937 chance_{first_seed()};
  ucontext_t scheduler_{};
};

Block& block() {
  static Block only;
  return only;
}

void Block::enter() {
  block().thread_(block().context_);
  block().fibers_[threadIdx.x]->waits = Waits::ended;
}

std::vector<std::uint32_t> block_order(std::uint32_t blocks) {
  std::vector<std::uint32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), block().chance());
  return order;
}

}  // namespace

std::uint32_t first_seed() {
  static const char* const given = std::getenv("GRAPEVINE_EMULATION_SEED");
  return given == nullptr ? 1 : static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10));
}
void reseed(std::uint32_t seed) { block().chance().seed(seed); }

cudaError_t check_launch(const Launch& launch, std::initializer_list<const void*> pointers) {
  if (launch.threads == 0 || launch.threads > kMostThreads)
    return fail(cudaErrorInvalidConfiguration, "a launch with blocks of " +
                                                   std::to_string(launch.threads) +
                                                   " threads: a block has 1 to 1024");
  if (launch.blocks == 0 || launch.blocks > kMostBlocks)
    return fail(cudaErrorInvalidConfiguration, "a launch of " + std::to_string(launch.blocks) +
                                                   " blocks: a grid has 1 to 2^31 - 1");
  std::size_t place = 0;
  for (const void* const pointer : pointers) {
    ++place;
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    if (pointer != nullptr && !allocation_of(address, 0))
      return fail(cudaErrorIllegalAddress, "a launch whose argument " + std::to_string(place) +
                                               " points to " + describe(address) +
                                               ": not memory of the device");
  }
  return cudaSuccess;
}

cudaError_t run(const Launch& launch, void (*thread)(const void*), const void* context) {
  gridDim = dim3(launch.blocks);
  blockDim = dim3(launch.threads);
  if (observer != nullptr) observer->launch_begins(launch);
  for (const std::uint32_t index : block_order(launch.blocks)) {
    blockIdx.x = index;
    if (observer != nullptr) observer->block_begins(index);
    if (!block().run(launch.threads, thread, context))
      return fail(cudaErrorIllegalAddress, observer->why_abandoned());
  }
  if (observer != nullptr) observer->launch_ends();
  return cudaSuccess;
}

void block_barrier() {
  const InRuntime runtime;
  block().wait(Waits::block);
}
void warp_barrier() {
  const InRuntime runtime;
  block().wait(Waits::warp);
}
void exchange_barrier() {
  const InRuntime runtime;
  block().wait(Waits::exchange);
}
std::uint32_t* lanes() {
  const InRuntime runtime;
  return block().lanes();
}
void fence() {
  const InRuntime runtime;
  if (observer != nullptr) observer->fence();
}
void note_atomic(const void* address, std::size_t bytes, const void* return_address) {
  const InRuntime runtime;
  if (observer != nullptr) observer->atomic(address, bytes, return_address);
}
void abandon_launch() { block().abandon(); }

}  // namespace emulation
