#include "messages/frozen_tensor.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "messages/check.hpp"

namespace grapevine {
namespace frozen_tensor_test {

at::Tensor ramp(std::int64_t n) { return at::arange(n, at::kFloat).contiguous(); }

bool is_fresh_buffer(const at::Tensor& t) {
  return t.is_contiguous() && !t.requires_grad() && !t.is_inference() && !t.grad_fn() &&
         t.storage().use_count() == 1 && t.storage().nbytes() == t.nbytes();
}

// What somebody may hand to freeze(), with every handle that is still able to write the same bytes.
struct Input {
  at::Tensor tensor;
  std::vector<at::Tensor> others;
};

struct InputCase {
  std::string name;
  std::function<Input()> make;
};

Input view_of(const at::Tensor& base, const std::function<at::Tensor(const at::Tensor&)>& view) {
  return {view(base), {base}};
}

std::vector<InputCase> aliased_inputs() {
  return {
      {"another handle",
       [] {
         const at::Tensor t = ramp(12);
         return Input{t, {t}};
       }},
      {"view", [] { return view_of(ramp(12), [](auto& b) {
                      return b.view({3, 4});
                    }); }},
      {"slice", [] { return view_of(ramp(12), [](auto& b) { return b.slice(0, 2, 7); }); }},
      {"strided", [] { return view_of(ramp(12), [](auto& b) { return b.slice(0, 0, 12, 3); }); }},
      {"transposed", [] { return view_of(ramp(12), [](auto& b) {
                            return b.view({3, 4}).t();
                          }); }},
      {"expanded", [] { return view_of(ramp(3), [](auto& b) {
                          return b.expand({4, 3});
                        }); }},
      {"detached", [] { return view_of(ramp(12), [](auto& b) { return b.detach(); }); }},
      {"data alias", [] { return view_of(ramp(12), [](auto& b) { return b.variable_data(); }); }},
      {"shared storage",
       [] {
         const at::Tensor base = ramp(12);
         return Input{at::empty({0}, at::kFloat).set_(base.storage(), 0, {12}), {base}};
       }},
      {"parameter",
       [] {
         const at::Tensor base = ramp(12).requires_grad_();
         return Input{base, {base.detach()}};
       }},
      {"view of a parameter",
       [] {
         const at::Tensor base = ramp(12).requires_grad_();
         return Input{base.view({3, 4}), {base.detach()}};
       }},
      {"empty slice", [] { return view_of(ramp(12), [](auto& b) { return b.slice(0, 4, 4); }); }},
      {"negated view", [] { return view_of(ramp(12), [](auto& b) { return at::_neg_view(b); }); }},
  };
}

TEST(FrozenTensor, NoEarlierHandleCanChangeIt) {
  for (const InputCase& c : aliased_inputs()) {
    SCOPED_TRACE(c.name);
    Input input = c.make();
    const at::Tensor expected = input.tensor.detach().clone().resolve_neg().contiguous();
    const FrozenTensor frozen = FrozenTensor::freeze(std::move(input.tensor));
    for (at::Tensor& other : input.others) other.fill_(-7);
    EXPECT_TRUE(at::equal(frozen.read(), expected));
    EXPECT_TRUE(is_fresh_buffer(frozen.read()));
  }
}

TEST(FrozenTensor, CopyOfNeverShares) {
  for (const InputCase& c : aliased_inputs()) {
    SCOPED_TRACE(c.name);
    Input input = c.make();
    const at::Tensor expected = input.tensor.detach().clone().resolve_neg().contiguous();
    const FrozenTensor frozen = FrozenTensor::copy_of(input.tensor);
    for (at::Tensor& other : input.others) other.fill_(-7);
    EXPECT_TRUE(at::equal(frozen.read(), expected));
    EXPECT_TRUE(is_fresh_buffer(frozen.read()));
    EXPECT_TRUE(frozen.sole_owner());
  }
}

TEST(FrozenTensor, LastHandleIsTakenWithoutACopy) {
  at::Tensor t = at::rand({10, 100});
  const void* bytes = t.data_ptr();
  FrozenTensor frozen = FrozenTensor::freeze(std::move(t));
  EXPECT_EQ(frozen.raw(), bytes);
  EXPECT_EQ(frozen.data<float>(), bytes);
  EXPECT_EQ(frozen.sizes(), at::IntArrayRef({10, 100}));
  EXPECT_TRUE(frozen.sole_owner());
  const at::Tensor thawed = std::move(frozen).thaw();
  EXPECT_EQ(thawed.data_ptr(), bytes);
  EXPECT_TRUE(is_fresh_buffer(thawed));
}

TEST(FrozenTensor, ManyRoundsKeepTheSameMemory) {
  at::Tensor t = at::zeros({64}, at::kDouble);
  const void* bytes = t.data_ptr();
  for (int round = 0; round < 50; ++round) {
    t.add_(1);
    FrozenTensor frozen = FrozenTensor::freeze(std::move(t));
    ASSERT_EQ(frozen.raw(), bytes) << round;
    t = std::move(frozen).thaw();
  }
  EXPECT_TRUE(at::equal(t, at::full({64}, 50, at::kDouble)));
}

TEST(FrozenTensor, AWeakHandleCannotReachTheFrozenBytes) {
  at::Tensor t = ramp(8);
  const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weak(
      t.getIntrusivePtr());
  const FrozenTensor frozen = FrozenTensor::freeze(std::move(t));
  EXPECT_FALSE(at::Tensor(weak.lock()).defined());
}

TEST(FrozenTensor, AParameterIsCopiedEvenByItsLastHandle) {
  at::Tensor parameter = ramp(8).requires_grad_();
  const void* bytes = parameter.data_ptr();
  const FrozenTensor frozen = FrozenTensor::freeze(std::move(parameter));
  EXPECT_NE(frozen.raw(), bytes);  // the original lived until the copy was made
  EXPECT_TRUE(is_fresh_buffer(frozen.read()));
}

TEST(FrozenTensor, BorrowedMemoryIsCopied) {
  std::vector<float> lender(6, 1.0f);
  const FrozenTensor frozen = FrozenTensor::freeze(at::from_blob(lender.data(), {6}, at::kFloat));
  lender.assign(6, -7.0f);
  EXPECT_TRUE(at::equal(frozen.read(), at::ones({6})));
}

TEST(FrozenTensor, ASmallPartDoesNotKeepALargeStorageAlive) {
  at::Tensor view = ramp(1 << 16).slice(0, 0, 4);  // nobody else holds the base
  at::Tensor shrunk = ramp(1 << 16);
  shrunk.resize_({4});
  ASSERT_GT(shrunk.storage().nbytes(), shrunk.nbytes());
  for (at::Tensor* part : {&view, &shrunk}) {
    const FrozenTensor frozen = FrozenTensor::freeze(std::move(*part));
    EXPECT_EQ(frozen.read().storage().nbytes(), 4 * sizeof(float));
    EXPECT_TRUE(at::equal(frozen.read(), ramp(4)));
  }
}

TEST(FrozenTensor, NonContiguousSoleOwnerBecomesContiguous) {
  at::Tensor transposed = ramp(12).view({3, 4}).t();
  at::Tensor channels_last = ramp(24).view({1, 2, 3, 4}).clone(at::MemoryFormat::ChannelsLast);
  for (at::Tensor* t : {&transposed, &channels_last}) {
    ASSERT_FALSE(t->is_contiguous());
    const at::Tensor expected = t->contiguous();
    const FrozenTensor frozen = FrozenTensor::freeze(std::move(*t));
    EXPECT_TRUE(is_fresh_buffer(frozen.read()));
    EXPECT_TRUE(at::equal(frozen.read(), expected));
  }
}

TEST(FrozenTensor, LazyNegationAndConjugationAreResolved) {
  const FrozenTensor negated = FrozenTensor::freeze(at::_neg_view(ramp(5)));
  EXPECT_EQ(negated.data<float>()[3], -3.0f);
  {
    const c10::InferenceMode guard;  // views made here keep no base: this is a sole handle
    at::Tensor sole = at::_neg_view(ramp(5));
    ASSERT_TRUE(sole.is_neg() && sole.storage().use_count() == 1);
    EXPECT_EQ(FrozenTensor::freeze(std::move(sole)).data<float>()[3], -3.0f);
  }
  const at::Tensor z = at::complex(ramp(3), ramp(3));
  const FrozenTensor conjugated = FrozenTensor::freeze(at::conj(z));
  EXPECT_EQ(conjugated.data<c10::complex<float>>()[2], c10::complex<float>(2, -2));
}

TEST(FrozenTensor, TensorsWithoutElements) {
  for (const std::vector<std::int64_t>& sizes :
       std::vector<std::vector<std::int64_t>>{{0}, {0, 3}, {3, 0, 2}}) {
    for (const bool copy : {false, true}) {
      at::Tensor t = at::empty(sizes, at::kFloat);
      FrozenTensor frozen = copy ? FrozenTensor::copy_of(t) : FrozenTensor::freeze(std::move(t));
      EXPECT_TRUE(frozen.defined());
      EXPECT_EQ(frozen.numel(), 0);
      EXPECT_EQ(frozen.nbytes(), 0u);
      EXPECT_EQ(frozen.sizes(), at::IntArrayRef(sizes));
      EXPECT_NO_THROW(frozen.raw());
      EXPECT_EQ(std::move(frozen).thaw().sizes(), at::IntArrayRef(sizes));
    }
  }
}

TEST(FrozenTensor, Scalars) {
  FrozenTensor frozen = FrozenTensor::freeze(at::full({}, 3.5));
  EXPECT_EQ(frozen.numel(), 1);
  EXPECT_EQ(frozen.sizes().size(), 0u);
  EXPECT_EQ(std::move(frozen).thaw().item<double>(), 3.5);
}

TEST(FrozenTensor, EmptyOne) {
  FrozenTensor empty;
  EXPECT_FALSE(empty.defined());
  EXPECT_FALSE(empty.sole_owner());
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_EQ(empty.nbytes(), 0u);
  EXPECT_FALSE(empty.read().defined());
  EXPECT_THROW(empty.raw(), InvariantBroken);
  EXPECT_THROW(empty.data<float>(), InvariantBroken);
  EXPECT_THROW(std::move(empty).thaw(), InvariantBroken);
  EXPECT_THROW(FrozenTensor::freeze(at::Tensor()), InvariantBroken);
  EXPECT_THROW(FrozenTensor::copy_of(at::Tensor()), InvariantBroken);
}

TEST(FrozenTensor, OnlyDenseTensorsFreeze) {
  EXPECT_THROW(FrozenTensor::freeze(at::eye(3).to_sparse()), InvariantBroken);
}

TEST(FrozenTensor, ThawCopiesWhileAnotherHandleLives) {
  FrozenTensor first = FrozenTensor::freeze(ramp(16));
  FrozenTensor second = first;
  EXPECT_EQ(first.raw(), second.raw());
  EXPECT_FALSE(first.sole_owner());
  at::Tensor mine = std::move(first).thaw();
  EXPECT_FALSE(first.defined());
  mine.fill_(-7);
  EXPECT_TRUE(at::equal(second.read(), ramp(16)));
  const void* bytes = second.raw();
  EXPECT_TRUE(second.sole_owner());
  EXPECT_EQ(std::move(second).thaw().data_ptr(), bytes);
}

TEST(FrozenTensor, ThawCopiesWhileAReadHandleLives) {
  for (const bool as_view : {false, true}) {
    FrozenTensor frozen = FrozenTensor::freeze(ramp(16));
    const at::Tensor reader = as_view ? frozen.read().view({4, 4}) : frozen.read();
    at::Tensor mine = std::move(frozen).thaw();
    mine.fill_(-7);
    EXPECT_TRUE(at::equal(reader.reshape({16}), ramp(16)));
    EXPECT_TRUE(is_fresh_buffer(mine));
  }
}

TEST(FrozenTensor, ThawForgetsAutogradThatAReaderSwitchedOn) {
  FrozenTensor frozen = FrozenTensor::freeze(ramp(4));
  at::Tensor(frozen.read()).requires_grad_();
  EXPECT_TRUE(is_fresh_buffer(std::move(frozen).thaw()));
}

TEST(FrozenTensor, InferenceTensorsFreezeWithoutACopyAndThawWritable) {
  FrozenTensor frozen;
  const void* bytes = nullptr;
  {
    const c10::InferenceMode guard;
    at::Tensor t = ramp(10);
    ASSERT_TRUE(t.is_inference());
    bytes = t.data_ptr();
    frozen = FrozenTensor::freeze(std::move(t));
    EXPECT_TRUE(is_fresh_buffer(FrozenTensor::copy_of(frozen.read()).read()));
  }
  EXPECT_EQ(frozen.raw(), bytes);
  at::Tensor thawed = std::move(frozen).thaw();
  EXPECT_TRUE(is_fresh_buffer(thawed));
  thawed.requires_grad_().mul(2).sum().backward();
  EXPECT_TRUE(at::equal(thawed.grad(), at::full({10}, 2.0f)));
}

TEST(FrozenTensor, ThawInInferenceModeGivesAnOrdinaryTensor) {
  FrozenTensor frozen = FrozenTensor::freeze(ramp(10));
  const FrozenTensor other = frozen;
  const c10::InferenceMode guard;
  EXPECT_TRUE(is_fresh_buffer(std::move(frozen).thaw()));
}

struct Misuse {
  std::string name;
  std::function<void(at::Tensor)> write;
};

std::vector<Misuse> misuses() {
  return {{"in place", [](at::Tensor t) { t.add_(1); }},
          {"through a view",
           [](at::Tensor t) {
             t.view({2, 4}).select(0, 1).zero_();
           }},
          {"through an alias", [](at::Tensor t) { t.detach().fill_(9); }},
          {"as an out argument", [](at::Tensor t) { at::add_out(t, at::ones({8}), 1); }},
          {"without gradients",
           [](at::Tensor t) {
             const at::NoGradGuard guard;
             t.copy_(at::ones({8}));
           }},
          {"in inference mode",
           [](at::Tensor t) {
             const c10::InferenceMode guard;
             t.mul_(2);
           }},
          {"new data", [](at::Tensor t) { t.set_(at::ones({8}).storage(), 0, {8}); }}};
}

TEST(FrozenTensor, WritesThroughAReadHandleAreCaught) {
  for (const Misuse& misuse : misuses()) {
    SCOPED_TRACE(misuse.name);
    FrozenTensor frozen = FrozenTensor::freeze(ramp(8));
    FrozenTensor other = frozen;
    misuse.write(frozen.read());
    EXPECT_THROW(frozen.read(), InvariantBroken);
    EXPECT_THROW(frozen.raw(), InvariantBroken);
    EXPECT_THROW(other.data<float>(), InvariantBroken);
    EXPECT_THROW(std::move(other).thaw(), InvariantBroken);
  }
}

TEST(FrozenTensor, ReadingIsNoMisuse) {
  const FrozenTensor frozen = FrozenTensor::freeze(ramp(8));
  at::Tensor parameter = at::zeros({8}).requires_grad_();
  (parameter * frozen.read()).sum().backward();
  parameter.mutable_grad().add_(frozen.read());
  const at::Tensor window = frozen.read().view({2, 4}).select(0, 0);
  EXPECT_EQ(window.sum().item<float>(), 6.0f);
  EXPECT_NO_THROW(frozen.read());
  EXPECT_TRUE(at::equal(parameter.grad(), ramp(8) * 2));
}

TEST(FrozenTensor, ThreadsReadWhileOthersDropTheirHandles) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    FrozenTensor frozen = FrozenTensor::freeze(ramp(257));
    const void* bytes = frozen.raw();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([handle = frozen, i, &wrong]() mutable {
        const FrozenTensor copy = handle;
        if (i % 2 == 0) handle = FrozenTensor();
        if (copy.data<float>()[256] != 256.0f) ++wrong;
      });
    for (std::thread& t : threads) t.join();
    threads.clear();
    ASSERT_EQ(wrong, 0);
    ASSERT_EQ(std::move(frozen).thaw().data_ptr(), bytes) << "a handle leaked in round " << round;
  }
}

TEST(FrozenTensor, ConcurrentThawsNeverShareBytes) {
  constexpr int kThreads = 6;
  for (int round = 0; round < 200; ++round) {
    std::vector<FrozenTensor> handles(kThreads, FrozenTensor::freeze(ramp(64)));
    std::vector<at::Tensor> thawed(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        thawed[i] = std::move(handles[i]).thaw();
        thawed[i].add_(i);
      });
    for (std::thread& t : threads) t.join();
    std::set<const void*> distinct;
    for (int i = 0; i < kThreads; ++i) {
      distinct.insert(thawed[i].data_ptr());
      ASSERT_TRUE(at::equal(thawed[i], ramp(64) + i)) << "round " << round;
    }
    ASSERT_EQ(distinct.size(), static_cast<std::size_t>(kThreads));
  }
}

}  // namespace frozen_tensor_test
}  // namespace grapevine
