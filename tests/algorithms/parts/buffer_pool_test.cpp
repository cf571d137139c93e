// The memory of a model's successors: of the kind of the first one.
#include "algorithms/parts/buffer_pool.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "algorithms/parts/server_rules.hpp"
#include "messages/tensor_memory.hpp"

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
    ++made;
    return at::empty(sizes, dtype);
  }
  bool owns(const at::Tensor&) const override { return true; }

  int made = 0;
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

}  // namespace buffer_pool_test
}  // namespace grapevine
