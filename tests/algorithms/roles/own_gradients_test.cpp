// What a rank of the partial role keeps for later rounds, and by how much it counts.
#include "algorithms/roles/partial/own_gradients.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/sim/outbox.hpp"

namespace grapevine {
namespace own_gradients_test {

FrozenTensor all_of(float value) { return FrozenTensor::freeze(at::full({3}, value)); }

// `steps` local steps from 0 down to -way, as one difference of a sum in which `full` weigh 1.
void add(OwnGradients& own, int steps, float way, std::int64_t full) {
  BufferPool pool;
  own.begin(0, all_of(0));
  for (int step = 0; step < steps; ++step) own.note_step(step);
  own.add_difference(all_of(-way), full, pool);
}

double first_of(const at::Tensor& vector) { return vector[0].item<double>(); }

// The sum that waits is of the weights of its own most: another H does not change what it is worth.
TEST(OwnGradients, WhatWaitsIsWorthTheSameWhereHHasAnotherMost) {
  OwnGradients own;
  add(own, 2, 8, 4);  // half of it
  EXPECT_EQ(own.weigh(4), 1);
  EXPECT_EQ(own.weigh(16), 0.25);
  add(own, 4, 16, 16);  // a quarter
  const auto given = own.contribute();
  EXPECT_EQ(given.gradients, 6);
  // Divided by 6/16 it is the mean of the ways, weighed by their steps: (2 * 8 + 4 * 16) / 6.
  EXPECT_DOUBLE_EQ(first_of(given.sum) * 16 / 6, (2.0 * 8 + 4 * 16) / 6);
}

// Of a model by itself a difference is the whole way, also of a run that is saved in between.
TEST(OwnGradients, AFlushGivesWholeDifferences) {
  sim::Outbox env(0, 2);
  OwnGradients own;
  add(own, 2, 8, 8);
  add(own, 2, 4, 8);
  StateDict saved;
  Archive saver = Archive::saver(saved);
  own.fields(saver, 3);
  OwnGradients loaded;
  Archive loader = Archive::loader(saved);
  loaded.fields(loader, 3);
  ASSERT_TRUE(loader.ok());
  ModelState model;
  model.x = all_of(0);
  for (OwnGradients* of : {&own, &loaded})
    EXPECT_DOUBLE_EQ(first_of(of->flush(env, Stamp(), 0, model)), 12);
}

// A round that is given up returns what was contributed to it.
TEST(OwnGradients, WhatIsTakenBackIsFlushedAsAWhole) {
  sim::Outbox env(0, 2);
  OwnGradients own;
  add(own, 1, 8, 8);
  const auto given = own.contribute();
  add(own, 1, 8, 8);
  own.take_back(given.sum);
  ModelState model;
  model.x = all_of(0);
  EXPECT_DOUBLE_EQ(first_of(own.flush(env, Stamp(), 0, model)), 16);
}

}  // namespace own_gradients_test
}  // namespace grapevine
