// Augmentation of the images of any data set, as published recipes have it: crops of the padded
// image (He et al. 2016, section 4.2: 4 pixels at a side of 32), mirroring, random-resized crops
// (Szegedy et al. 2015).
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "apps/zoo/data.hpp"
#include "apps/zoo/data/images/image_resize.hpp"
#include "apps/zoo/data/random_stream.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kPaddedPart = 8;  // of the side: 4 pixels of 32

// Of one image [C, H, W]. Draws the same numbers whichever changes are chosen.
class AugmentedImage {
 public:
  AugmentedImage(const DataInfo& info, const Augmentation& augmentation, std::uint64_t seed,
                 std::int64_t index)
      : info_(info),
        augmentation_(augmentation),
        seed_(seed),
        index_(index),
        stream_(mix_seed(seed, static_cast<std::uint64_t>(index))) {}

  at::Tensor of(at::Tensor image) {
    const std::int64_t right = shift(image.size(2)), down = shift(image.size(1));
    const bool mirrored = stream_.chance(0.5);
    if (augmentation_.resized_crop) image = resized(image);
    if (augmentation_.crop) image = shifted(image, right, down);
    return augmentation_.flip && mirrored ? image.flip({2}) : image;
  }

 private:
  std::int64_t shift(std::int64_t side) {
    const std::int64_t padding = std::max<std::int64_t>(1, side / kPaddedPart);
    return stream_.below(2 * padding + 1) - padding;
  }

  at::Tensor shifted(const at::Tensor& image, std::int64_t right, std::int64_t down) const {
    at::Tensor moved = at::zeros_like(image);
    for (std::size_t channel = 0; channel < info_.black.size(); ++channel)
      moved.select(0, static_cast<std::int64_t>(channel)).fill_(info_.black[channel]);
    const std::int64_t height = image.size(1) - std::abs(down);
    const std::int64_t width = image.size(2) - std::abs(right);
    const auto at = [](std::int64_t by) { return std::max<std::int64_t>(0, by); };
    moved.narrow(1, at(down), height)
        .narrow(2, at(right), width)
        .copy_(image.narrow(1, at(-down), height).narrow(2, at(-right), width));
    return moved;
  }

  at::Tensor resized(const at::Tensor& image) const {
    const ImageExtent extent{static_cast<int>(image.size(2)), static_cast<int>(image.size(1))};
    const ImageRegion region = random_region(extent, seed_, index_);
    const auto whole = [](double begin, double length, std::int64_t most) {
      const auto size = std::clamp<std::int64_t>(std::llround(length), 1, most);
      return std::pair(std::clamp<std::int64_t>(std::llround(begin), 0, most - size), size);
    };
    const auto [x, width] = whole(region.x, region.width, image.size(2));
    const auto [y, height] = whole(region.y, region.height, image.size(1));
    return at::upsample_bilinear2d(image.narrow(1, y, height).narrow(2, x, width).unsqueeze(0),
                                   {image.size(1), image.size(2)}, /*align_corners=*/false)
        .squeeze(0);
  }

  const DataInfo& info_;
  const Augmentation& augmentation_;
  const std::uint64_t seed_;
  const std::int64_t index_;
  RandomStream stream_;
};

class AugmentedData final : public DataSet {
 public:
  AugmentedData(std::shared_ptr<const DataSet> data, const Augmentation& augmentation)
      : data_(std::move(data)), augmentation_(augmentation) {}

  const DataInfo& info() const override { return data_->info(); }

  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t augment_seed) const override {
    auto batch = data_->batch(split, indices, 0);
    if (!batch || augment_seed == 0) return batch;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const at::Tensor image = batch->input[static_cast<std::int64_t>(i)];
      image.copy_(
          AugmentedImage(info(), augmentation_, augment_seed, indices[i]).of(image.clone()));
    }
    return batch;
  }

 private:
  const std::shared_ptr<const DataSet> data_;
  const Augmentation augmentation_;
};

}  // namespace

Expected<Augmentation> parse_augmentation(const std::string& text) {
  Augmentation chosen;
  if (text == "auto") return chosen;
  chosen.usual = false;
  if (text == "none") return chosen;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const auto comma = rest.find(',');
    more = comma != std::string_view::npos;
    const std::string name(rest.substr(0, comma));
    if (more) rest.remove_prefix(comma + 1);
    bool* change = name == "crop"                  ? &chosen.crop
                   : name == "flip"                ? &chosen.flip
                   : name == "random-resized-crop" ? &chosen.resized_crop
                                                   : nullptr;
    if (change == nullptr)
      return unknown_name("--augment", name,
                          {"auto", "none", "crop", "flip", "random-resized-crop"});
    *change = true;
  }
  if (chosen.crop && chosen.resized_crop)
    return bad_input("--augment " + text +
                     ": crop and random-resized-crop exclude each other: "
                     "give one of them");
  return chosen;
}

Expected<std::shared_ptr<const DataSet>> augmented(std::shared_ptr<const DataSet> data,
                                                   const Augmentation& augmentation) {
  const bool changes = augmentation.crop || augmentation.flip || augmentation.resized_crop;
  if (changes && data->info().sample_shape.size() != 3)
    return bad_input("--augment: the samples of data '" + data->info().name +
                     "' are no images [channels, height, width]: use auto or none");
  return std::shared_ptr<const DataSet>(
      std::make_shared<AugmentedData>(std::move(data), augmentation));
}

}  // namespace grapevine
