// The memory of a model's successors: of the kind of the first one.
#include "algorithms/parts/buffer_pool.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/parts/recycled_memory.hpp"
#include "algorithms/parts/server_rules.hpp"
#include "messages/random.hpp"
#include "messages/tensor_memory.hpp"
#include "tests/counting_allocator.hpp"

namespace grapevine {
namespace buffer_pool_test {

constexpr std::int64_t kSize = 6000;  // above what is sent from send memory

// Counts the tensors that it has made and that are alive.
class CountingMemory : public std::enable_shared_from_this<CountingMemory> {
 public:
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) {
    at::Tensor owner = at::empty(sizes, dtype);
    void* const data = owner.data_ptr();
    ++made;
    return tensor_on(data, sizes, dtype, std::make_unique<Block>(shared_from_this(), owner));
  }
  static bool owns(const at::Tensor& t) {
    return dynamic_cast<const Block*>(memory_of(t)) != nullptr;
  }
  FrozenTensor model(std::int64_t size = kSize) {
    at::Tensor x = empty({size}, at::kFloat);
    x.copy_(at::arange(size, at::kFloat));
    return FrozenTensor::freeze(std::move(x));
  }

  int made = 0;
  int alive = 0;

 private:
  class Block final : public TensorMemory {
   public:
    Block(std::shared_ptr<CountingMemory> home, at::Tensor owner)
        : home_(std::move(home)), owner_(std::move(owner)) {
      ++home_->alive;
    }
    ~Block() override { --home_->alive; }
    bool exclusive() const override { return true; }
    at::Tensor allocate_like(at::IntArrayRef sizes, at::ScalarType dtype) const override {
      return home_->empty(sizes, dtype);
    }

   private:
    const std::shared_ptr<CountingMemory> home_;
    const at::Tensor owner_;
  };
};

// As that of shared memory.
class AllToSend final : public SendMemory {
 public:
  at::Tensor allocate(at::IntArrayRef sizes, at::ScalarType dtype) override {
    if (made == most) return {};
    ++made;
    return own_->empty(sizes, dtype);
  }
  bool owns(const at::Tensor& t) const override { return CountingMemory::owns(t); }

  int made = 0;
  int most = 100;

 private:
  const std::shared_ptr<CountingMemory> own_ = std::make_shared<CountingMemory>();
};

void add_one(at::Tensor& out, const at::Tensor& x) { at::add_out(out, x, at::ones({1})); }

TEST(BufferPool, SuccessorsLieInMemoryOfTheSameKind) {
  const auto memory = std::make_shared<CountingMemory>();
  {
    BufferPool pool;
    FrozenTensor x = memory->model();
    for (int step = 0; step < 10; ++step) {
      const FrozenTensor share = x;  // a peer reads it: the next one is another vector
      update_frozen(x, pool, add_one);
      EXPECT_TRUE(CountingMemory::owns(x.read())) << "step " << step;
      EXPECT_NE(x.raw(), share.raw());
      const FrozenTensor z = FrozenTensor::freeze(pool.take(x));
      EXPECT_TRUE(CountingMemory::owns(z.read())) << "step " << step;
    }
    EXPECT_EQ(x.data<float>()[5], 15);
    const void* const at = x.raw();
    update_frozen(x, pool, add_one);
    EXPECT_EQ(x.raw(), at) << "alone it is written in place";
    EXPECT_GT(memory->made, 2);
    EXPECT_LE(memory->alive, 3);
  }
  EXPECT_EQ(memory->alive, 0);
}

// A change in place of a shared model is a change of a copy.
TEST(BufferPool, ThawedCopiesLieInMemoryOfTheSameKind) {
  const auto memory = std::make_shared<CountingMemory>();
  FrozenTensor x = memory->model();
  const FrozenTensor reader = x;
  change_in_place(x, [](at::Tensor& own) { own.mul_(2); });
  EXPECT_NE(x.raw(), reader.raw());
  EXPECT_TRUE(CountingMemory::owns(x.read()));
  EXPECT_EQ(x.data<float>()[7], 14);
  EXPECT_EQ(reader.data<float>()[7], 7);
}

// They are sent, or are the models of servers: no device reads them.
TEST(BufferPool, SlicesOfAModelLieInOrdinaryMemory) {
  const auto memory = std::make_shared<CountingMemory>();
  const FrozenTensor x = memory->model();
  const FrozenTensor part = part_of(x, {100, 5000});
  EXPECT_EQ(memory_of(part.read()), nullptr);
  EXPECT_EQ(memory->made, 1);
  EXPECT_EQ(part_of(x, {0, kSize}).raw(), x.raw());
  EXPECT_TRUE(part.read().equal(x.read().narrow(0, 100, 5000)));
  EXPECT_TRUE(part.sole_owner());
}

// A mean of models, for example.
TEST(BufferPool, OrdinaryTensorsThatFollowAModelAreCopiedThere) {
  const auto memory = std::make_shared<CountingMemory>();
  const FrozenTensor x = memory->model();
  const FrozenTensor mean = frozen_successor(x, at::ones({kSize}));
  EXPECT_TRUE(CountingMemory::owns(mean.read()));
  EXPECT_EQ(mean.data<float>()[kSize - 1], 1);
  at::Tensor here = memory->empty({kSize}, at::kFloat);
  const void* const at = here.data_ptr();
  EXPECT_EQ(frozen_successor(x, std::move(here)).raw(), at);
  at::Tensor ordinary = at::ones({kSize});
  const void* const there = ordinary.data_ptr();
  EXPECT_EQ(frozen_successor(FrozenTensor::freeze(at::ones({kSize})), std::move(ordinary)).raw(),
            there);
}

TEST(BufferPool, OrdinaryModelsHaveOrdinarySuccessors) {
  BufferPool pool;
  FrozenTensor x = FrozenTensor::freeze(at::zeros({kSize}));
  const FrozenTensor share = x;
  update_frozen(x, pool, add_one);
  EXPECT_EQ(memory_of(x.read()), nullptr);
  EXPECT_EQ(x.data<float>()[0], 1);
}

// What is sent where it lies saves a copy for each receiver.
TEST(BufferPool, SendMemoryComesFirst) {
  const auto memory = std::make_shared<CountingMemory>();
  const auto to_send = std::make_shared<AllToSend>();
  BufferPool pool;
  FrozenTensor x = memory->model();
  const FrozenTensor share = x;
  use_send_memory(to_send);
  EXPECT_TRUE(has_send_memory());
  update_frozen(x, pool, add_one);
  use_send_memory(nullptr);
  EXPECT_FALSE(has_send_memory());
  EXPECT_EQ(to_send->made, 1);
  EXPECT_EQ(memory->made, 1);
  EXPECT_EQ(x.data<float>()[0], 1);
}

// A tensor that is sent may be retired before it is sent, and again when its reader returns it.
TEST(BufferPool, ATensorThatIsRetiredTwiceIsUsedAgain) {
  BufferPool pool;
  pool.add_capacity(2);
  const FrozenTensor x = FrozenTensor::freeze(at::zeros({kSize}));
  FrozenTensor share = FrozenTensor::freeze(pool.take(x));
  const void* const at = share.raw();
  pool.give(share);
  EXPECT_NE(pool.take(x).data_ptr(), at) << "it is still read";
  pool.give(std::move(share));
  EXPECT_EQ(pool.take(x).data_ptr(), at);
}

TEST(BufferPool, CopiesLieInRetiredBuffers) {
  BufferPool pool;
  const FrozenTensor x = FrozenTensor::freeze(at::arange(kSize, at::kFloat));
  FrozenTensor retired = FrozenTensor::freeze(at::zeros({kSize}));
  const void* const at = retired.raw();
  pool.give(std::move(retired));
  const at::Tensor copy = pool.copy_of(x.read(), x);
  EXPECT_EQ(copy.data_ptr(), at);
  EXPECT_TRUE(copy.equal(x.read()));
}

// A vector that is sent from elsewhere would be copied for each receiver.
TEST(BufferPool, BuffersOutsideOfSendMemoryAreNotUsedAgain) {
  const auto to_send = std::make_shared<AllToSend>();
  BufferPool pool;
  const FrozenTensor x = FrozenTensor::freeze(at::zeros({kSize}));
  pool.give(FrozenTensor::freeze(at::ones({kSize})));
  use_send_memory(to_send);
  const at::Tensor taken = pool.take(x);
  use_send_memory(nullptr);
  EXPECT_EQ(to_send->made, 1);
}

TEST(BufferPool, WithoutSendMemoryThatIsLeftBuffersAreUsedAgain) {
  const auto to_send = std::make_shared<AllToSend>();
  to_send->most = 0;
  BufferPool pool;
  FrozenTensor x = FrozenTensor::freeze(at::zeros({kSize}));
  FrozenTensor retired = FrozenTensor::freeze(at::zeros({kSize}));
  const void* const of_retired = retired.raw();
  pool.give(std::move(retired));
  use_send_memory(to_send);
  update_frozen(x, pool, add_one);
  use_send_memory(nullptr);
  EXPECT_EQ(x.raw(), of_retired);
  EXPECT_EQ(x.data<float>()[0], 1);
}

// The first model of a run lies elsewhere.
TEST(BufferPool, ModelsMoveIntoSendMemory) {
  const auto to_send = std::make_shared<AllToSend>();
  BufferPool pool;
  FrozenTensor x = FrozenTensor::freeze(at::zeros({kSize}));
  use_send_memory(to_send);
  update_frozen(x, pool, add_one);
  EXPECT_TRUE(to_send->owns(x.read()));
  const void* const at = x.raw();
  update_frozen(x, pool, add_one);
  use_send_memory(nullptr);
  EXPECT_EQ(x.raw(), at) << "there it is written in place";
  EXPECT_EQ(x.data<float>()[0], 2);
  EXPECT_EQ(to_send->made, 1);
}

// ---- RecycledMemory ----

constexpr std::int64_t kSlice = 4096;

TEST(RecycledMemory, ReturnsWithTheLastHandle) {
  const RecycledMemory memory;
  const at::Tensor like = at::arange(kSlice, at::kFloat);
  FrozenTensor sum = FrozenTensor::freeze(memory.copy_of(like));
  EXPECT_TRUE(sum.read().equal(like));
  const void* const at = sum.raw();
  FrozenTensor received = sum;
  sum = FrozenTensor();
  EXPECT_NE(memory.take(like).data_ptr(), at) << "it is still read";
  at::Tensor own = std::move(received).thaw();
  EXPECT_EQ(own.data_ptr(), at) << "its last reader writes to it";
  own.reset();
  EXPECT_EQ(memory.take(like).data_ptr(), at);
}

// Pieces of one vector differ by an element.
TEST(RecycledMemory, KeepsNoMoreBlocksThanWereInUse) {
  const RecycledMemory memory;
  const CountingAllocator allocator;
  Rng rng(22);
  for (int round = 0; round < 100; ++round) {
    const at::Tensor one = memory.take(at::empty({kSlice - static_cast<std::int64_t>(rng() % 2)}));
    const at::Tensor other = memory.take(at::empty({kSlice - 1}));
    EXPECT_NE(one.data_ptr(), other.data_ptr());
  }
  // Those of at::empty() are freed at once.
  EXPECT_EQ(allocator.kept(), 2 * kSlice * std::int64_t{sizeof(float)}) << "seed 22";
  for (const std::int64_t size : {100 * kSlice, 10 * kSlice, kSlice}) {
    const at::Tensor one = memory.take(at::empty({size})), other = memory.take(at::empty({size}));
  }
  EXPECT_EQ(allocator.kept(), 2 * kSlice * std::int64_t{sizeof(float)});
}

// Copies share it, tensors outlive it, and their last handles end on any thread.
TEST(RecycledMemory, IsSharedByThreads) {
  std::vector<std::thread> threads;
  std::vector<at::Tensor> left(4);
  {
    const RecycledMemory memory;
    for (std::size_t t = 0; t < left.size(); ++t)
      threads.emplace_back([memory, t, &left] {
        const at::Tensor like = at::full({kSlice}, static_cast<double>(t));
        for (int i = 0; i < 200; ++i) {
          const at::Tensor mine = memory.copy_of(like);
          EXPECT_TRUE(mine.equal(like)) << "thread " << t;
        }
        left[t] = memory.copy_of(like);
      });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < left.size(); ++t)
    EXPECT_TRUE((left[t] == static_cast<double>(t)).all().item<bool>());
}

// What is sent from elsewhere would be copied.
TEST(RecycledMemory, SendMemoryComesFirst) {
  const RecycledMemory memory;
  const auto to_send = std::make_shared<AllToSend>();
  use_send_memory(to_send);
  const at::Tensor taken = memory.take(at::empty({kSize}));
  use_send_memory(nullptr);
  EXPECT_EQ(to_send->made, 1);
}

}  // namespace buffer_pool_test
}  // namespace grapevine
