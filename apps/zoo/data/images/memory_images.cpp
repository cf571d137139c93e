#include "apps/zoo/data/images/memory_images.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "messages/check.hpp"

namespace grapevine {

MemoryImages::MemoryImages(Parts parts) : parts_(std::move(parts)) {
  for (const LabelledPixels* split : {&parts_.train, &parts_.test})
    GRAPEVINE_CHECK(static_cast<std::int64_t>(split->pixels.size()) ==
                        static_cast<std::int64_t>(split->labels.size()) * parts_.shape.size(),
                    parts_.name);
  info_.name = parts_.name;
  info_.task = Task::classification;
  info_.sample_shape = {parts_.shape.channels, parts_.shape.height, parts_.shape.width};
  info_.classes = parts_.classes;
  for (std::size_t channel = 0; channel < static_cast<std::size_t>(parts_.shape.channels);
       ++channel)
    info_.black.push_back(-parts_.normalization.mean[channel] /
                          parts_.normalization.deviation[channel]);
  info_.train_size = static_cast<std::int64_t>(parts_.train.labels.size());
  info_.test_size = static_cast<std::int64_t>(parts_.test.labels.size());
}

Expected<Batch> MemoryImages::batch(Split split, const std::vector<std::int64_t>& indices,
                                    std::uint64_t augment_seed) const {
  check_indices(info_, split, indices);
  const LabelledPixels& from = split == Split::train ? parts_.train : parts_.test;
  Batch batch = empty_batch(info_, static_cast<std::int64_t>(indices.size()));
  auto* input = batch.input.data_ptr<float>();
  auto* target = batch.target.data_ptr<std::int64_t>();
  const std::uint64_t seed = parts_.padding > 0 ? augment_seed : 0;
  for (const std::int64_t index : indices) {
    write_normalized(from.pixels.data() + index * parts_.shape.size(), parts_.shape,
                     parts_.normalization,
                     random_placement(seed, index, {parts_.padding, parts_.padding}), input);
    input += parts_.shape.size();
    *target++ = from.labels[index];
  }
  return batch;
}

}  // namespace grapevine
