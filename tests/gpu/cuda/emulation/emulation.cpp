#include <cuda_runtime.h>
#include <ucontext.h>

#include <cstddef>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

namespace emulation {
namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 16;
constexpr unsigned kLanes = 32;

enum class Waits { no, warp, block, ended };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};
  Waits waits = Waits::no;
};

// One block's threads, in a different order after each barrier: what one of them needs of another
// without a barrier between shows as a wrong result.
class Block {
 public:
  void run(unsigned threads, const std::function<void()>& thread) {
    thread_ = &thread;
    while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>());
    live_ = threads;
    lanes_.assign(threads + kLanes, 0);
    order_.resize(threads);
    for (unsigned i = 0; i < threads; ++i) start(order_[i] = i);
    while (live_ > 0) turn();
  }

  void wait(Waits what) {
    Fiber& fiber = *fibers_[threadIdx.x];
    fiber.waits = what;
    swapcontext(&fiber.context, &scheduler_);
  }
  std::uint32_t* lanes() { return &lanes_[threadIdx.x / kLanes * kLanes]; }

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
      swapcontext(&scheduler_, &fiber.context);
      if (fiber.waits == Waits::ended) --live_;
    }
    if (!ran && live_ > 0)
      throw std::logic_error("a barrier that not all threads of its block or warp reach");
    open();
  }

  void open() {
    const auto threads = static_cast<unsigned>(order_.size());
    for (unsigned first = 0; first < threads; first += kLanes)
      open_if_all(first, std::min(threads, first + kLanes), Waits::warp);
    open_if_all(0, threads, Waits::block);
  }

  void open_if_all(unsigned first, unsigned last, Waits what) {
    for (unsigned i = first; i < last; ++i)
      if (fibers_[i]->waits != what) return;
    for (unsigned i = first; i < last; ++i) fibers_[i]->waits = Waits::no;
  }

  const std::function<void()>* thread_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<unsigned> order_;
  std::vector<std::uint32_t> lanes_;
  unsigned live_ = 0;
  std::mt19937 chance_{1};
  ucontext_t scheduler_{};
};

Block& block() {
  static Block only;
  return only;
}

void Block::enter() {
  (*block().thread_)();
  block().fibers_[threadIdx.x]->waits = Waits::ended;
}

}  // namespace

void run(unsigned blocks, unsigned threads, const std::function<void()>& thread) {
  gridDim = dim3(blocks);
  blockDim = dim3(threads);
  for (unsigned index = 0; index < blocks; ++index) {
    blockIdx.x = index;
    block().run(threads, thread);
  }
}

void block_barrier() { block().wait(Waits::block); }
void warp_barrier() { block().wait(Waits::warp); }
std::uint32_t* lanes() { return block().lanes(); }

}  // namespace emulation
