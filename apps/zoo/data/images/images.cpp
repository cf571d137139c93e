// images:DIR: JPEG and PNG files in one folder per class (image_folder.hpp), listed once and
// decoded batch by batch. Where all images are at most 64 pixels wide and high, every sample has
// the size of the first one and augmentation is CIFAR's (pad by 4, crop, mirror). Otherwise samples
// are 224 × 224: the middle of the image after its short side became 256, or a random-resized crop,
// mirrored half of the time (He et al. 2016, section 3.4, with Szegedy et al. 2015's crops).
// Normalised with ImageNet's mean and deviation.
#include <algorithm>
#include <optional>
#include <utility>

#include "apps/zoo/data/images/image_file.hpp"
#include "apps/zoo/data/images/image_folder.hpp"
#include "apps/zoo/data/images/image_resize.hpp"
#include "apps/zoo/data/images/pixels.hpp"
#include "apps/zoo/data/makers.hpp"
#include "apps/zoo/data/parallel.hpp"
#include "apps/zoo/data/random_stream.hpp"

namespace grapevine {
namespace {

constexpr int kSmall = 64;  // pixels
constexpr int kDefaultSide = 224;
constexpr int kShortSide = 256;
constexpr int kCropPadding = 4;  // of the usual augmentation
constexpr int kPaddedPart = 8;   // of the side, of one that is asked for: augmentation.cpp
constexpr std::uint64_t kRegionStream = 0x726567696f6e;  // messages/random.hpp
constexpr Normalization kImageNetNormalization{{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}};

// The size of the first image where all are small; nothing where one is not. Reads the headers up
// to the first large image: one file of an ImageNet-like folder, all of a CIFAR-like one.
Expected<std::optional<ImageExtent>> common_small_extent(const ImageListing& listing,
                                                         bool skip_damaged) {
  std::optional<ImageExtent> first;
  for (const std::vector<ImageEntry>* split : {&listing.train, &listing.test})
    for (const ImageEntry& entry : *split) {
      auto file = ImageFile::open(listing.path(entry));
      if (!file && skip_damaged) continue;
      if (!file) return file.error();
      const ImageExtent extent = file->extent();
      if (std::max(extent.width, extent.height) > kSmall) return std::optional<ImageExtent>();
      if (!first) first = extent;
    }
  return first;
}

class Images final : public DataSet {
 public:
  Images(ImageListing listing, std::optional<ImageExtent> small, const DataOptions& options)
      : listing_(std::move(listing)),
        augment_(options.augment),
        small_(small.has_value()),
        extent_(small.value_or(ImageExtent{kDefaultSide, kDefaultSide})),
        shape_{3, extent_.height, extent_.width},
        threads_(options.decode_threads) {
    if (augment_.usual) {
      augment_.crop = small_;
      augment_.resized_crop = !small_;
      augment_.flip = true;
    }
    info_.name = "images";
    info_.task = Task::classification;
    info_.sample_shape = {shape_.channels, shape_.height, shape_.width};
    info_.classes = static_cast<std::int64_t>(listing_.classes.size());
    info_.train_size = static_cast<std::int64_t>(listing_.train.size());
    info_.test_size = static_cast<std::int64_t>(listing_.test.size());
    info_.slow = true;
    info_.class_names = listing_.classes;
  }

  const DataInfo& info() const override { return info_; }

  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t augment_seed) const override {
    check_indices(info_, split, indices);
    const std::vector<ImageEntry>& entries = split == Split::train ? listing_.train : listing_.test;
    const auto size = static_cast<std::int64_t>(indices.size());
    Batch batch = empty_batch(info_, size);
    auto* input = batch.input.data_ptr<float>();
    auto* target = batch.target.data_ptr<std::int64_t>();
    std::vector<Expected<void>> results(indices.size());
    parallel_for(threads_, size, [&](std::int64_t i) {
      const ImageEntry& entry = entries[indices[i]];
      target[i] = entry.label;
      results[i] = load(entry, indices[i], augment_seed, input + i * shape_.size());
    });
    // The first in the order of the batch, whichever thread came across its own first.
    for (const Expected<void>& result : results)
      if (!result) return result.error();
    return batch;
  }

 private:
  Expected<void> load(const ImageEntry& entry, std::int64_t index, std::uint64_t augment_seed,
                      float* out) const {
    auto file = ImageFile::open(listing_.path(entry));
    if (!file) return file.error();
    const ImageExtent stored = file->extent();
    ImageRegion region = choose_region(stored, augment_seed, index);
    const int reduction = choose_reduction(region);
    auto image = file->decode(reduction);
    if (!image) return image.error();
    const double x_scale = static_cast<double>(image->extent.width) / stored.width;
    const double y_scale = static_cast<double>(image->extent.height) / stored.height;
    region = {region.x * x_scale, region.y * y_scale, region.width * x_scale,
              region.height * y_scale};
    const std::vector<std::uint8_t> planes = resize(*image, region, extent_);
    ImagePlacement placement =
        random_placement(augment_seed, index, small_ && augment_.crop ? padding() : CropPadding{});
    placement.mirrored = placement.mirrored && augment_.flip;
    write_normalized(planes.data(), shape_, kImageNetNormalization, placement, out);
    return {};
  }

  ImageRegion choose_region(const ImageExtent& stored, std::uint64_t augment_seed,
                            std::int64_t index) const {
    if (augment_seed != 0 && augment_.resized_crop)
      return random_region(stored, augment_seed, index);
    if (small_)
      return {0, 0, static_cast<double>(stored.width), static_cast<double>(stored.height)};
    ImageRegion region =
        centre_region(stored, extent_, static_cast<double>(kDefaultSide) / kShortSide);
    if (augment_seed == 0 || !augment_.crop) return region;
    RandomStream stream(mix_seed(augment_seed ^ kRegionStream, static_cast<std::uint64_t>(index)));
    region.x = stream.uniform(0, stored.width - region.width);
    region.y = stream.uniform(0, stored.height - region.height);
    return region;
  }

  CropPadding padding() const {
    if (augment_.usual) return {kCropPadding, kCropPadding};
    return {std::max(1, extent_.width / kPaddedPart), std::max(1, extent_.height / kPaddedPart)};
  }

  // How much smaller the region may be decoded without it having to be enlarged afterwards.
  int choose_reduction(const ImageRegion& region) const {
    int reduction = 1;
    while (reduction < 8 && region.width >= 2.0 * reduction * extent_.width &&
           region.height >= 2.0 * reduction * extent_.height)
      reduction *= 2;
    return reduction;
  }

  // Constant after construction.
  ImageListing listing_;
  Augmentation augment_;
  bool small_;
  ImageExtent extent_;
  PixelShape shape_;
  int threads_;
  DataInfo info_;
};

}  // namespace

MadeDataSet make_images(const std::string& path, const DataOptions& options) {
  auto listing = list_images(path);
  if (!listing) return listing.error();
  auto small = common_small_extent(*listing, options.skip_damaged);
  if (!small) return small.error();
  return MadeDataSet(std::make_shared<Images>(std::move(*listing), *small, options));
}

}  // namespace grapevine
