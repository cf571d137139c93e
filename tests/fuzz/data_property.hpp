// What the readers of data sets promise, whatever their files hold.
#pragma once
#include <cstdint>
#include <vector>

#include "apps/zoo/data/makers.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

namespace grapevine::fuzzing {

inline std::vector<std::int64_t> two_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> two = {2};
  two.insert(two.end(), shape.begin(), shape.end());
  return two;
}

// The first and the last sample.
inline void check_batch(const DataSet& data, Split split, std::int64_t samples) {
  const DataInfo& info = data.info();
  const auto batch = data.batch(split, {0, samples - 1}, 1);
  GRAPEVINE_CHECK(batch.ok(), batch.error().message);
  GRAPEVINE_CHECK(batch->input.sizes() == two_of(info.sample_shape), "a batch of another shape");
  if (info.task == Task::regression) {
    GRAPEVINE_CHECK(batch->target.sizes() == two_of({info.classes}), "targets of another shape");
    return;
  }
  GRAPEVINE_CHECK(batch->target.sizes() == two_of(info.target_shape), "labels of another shape");
  GRAPEVINE_CHECK(batch->target.min().item<std::int64_t>() >= 0 &&
                      batch->target.max().item<std::int64_t>() < info.classes,
                  "a label beyond the classes");
  if (info.vocabulary > 0)
    GRAPEVINE_CHECK(batch->input.min().item<float>() >= 0 &&
                        batch->input.max().item<float>() < static_cast<float>(info.vocabulary),
                    "a token beyond the vocabulary");
}

inline void check_data_set(const MadeDataSet& made) {
  if (!made) return check_one_line(made.error());
  const DataInfo& info = (*made)->info();
  GRAPEVINE_CHECK(info.train_size > 0 && info.test_size >= 0, "a data set without samples");
  check_batch(**made, Split::train, info.train_size);
  if (info.test_size > 0) check_batch(**made, Split::test, info.test_size);
}

}  // namespace grapevine::fuzzing
