// TinyData: a data set whose samples are a hash of their index; tests can slow it down or break it.
#pragma once
#include <ATen/ATen.h>

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "gpu/data/data_set.hpp"
#include "messages/random.hpp"

namespace grapevine {

class TinyData : public DataSet {
 public:
  // Called with the indices before a batch is made; an error here is the batch's.
  using Hook = std::function<Expected<void>(const std::vector<std::int64_t>&)>;

  explicit TinyData(DataInfo info, Hook hook = {})
      : info_(std::move(info)), hook_(std::move(hook)) {}

  const DataInfo& info() const override { return info_; }

  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t augment_seed) const override {
    ++reads;
    if (hook_) {
      const Expected<void> allowed = hook_(indices);
      if (!allowed) return allowed.error();
    }
    std::vector<std::int64_t> shape = info_.sample_shape;
    shape.insert(shape.begin(), static_cast<std::int64_t>(indices.size()));
    Batch batch{at::empty(shape, at::kFloat), at::Tensor()};
    const bool labels = info_.task == Task::classification;
    batch.target = labels ? at::empty({shape[0]}, at::kLong)
                          : at::empty({shape[0], info_.classes}, at::kFloat);
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      const auto index = static_cast<std::uint64_t>(indices[static_cast<std::size_t>(i)]);
      const std::uint64_t key = mix_seed(split == Split::test ? 99 : 0, index);
      fill(batch.input[i], mix_seed(key, augment_seed));
      if (labels) {
        batch.target[i] =
            static_cast<std::int64_t>(key % static_cast<std::uint64_t>(info_.classes));
      } else {
        fill(batch.target[i], mix_seed(key, 7));
      }
    }
    return batch;
  }

  mutable std::atomic<int> reads{0};

 private:
  // Values in [-1, 1).
  static void fill(at::Tensor row, std::uint64_t key) {
    auto* values = row.data_ptr<float>();
    for (std::int64_t i = 0; i < row.numel(); ++i)
      values[i] = static_cast<float>(
          static_cast<double>(mix_seed(key, static_cast<std::uint64_t>(i)) >> 11) * 0x1p-52 - 1);
  }

  DataInfo info_;
  Hook hook_;
};

inline DataInfo tiny_info(std::int64_t train_size = 40) {
  DataInfo info;
  info.name = "tiny";
  info.sample_shape = {3};
  info.classes = 6;
  info.train_size = train_size;
  info.test_size = 17;
  return info;
}

}  // namespace grapevine
