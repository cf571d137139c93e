// glyphs[:N]: rendered handwritten digits, 28×28 grey, N training images (12,000) and N / 6 test
// images. The same for every run: the run's seed does not enter. Image i does not depend on N. Each
// ten consecutive images hold each digit once, in random order, so that any shard is balanced. The
// rendering already distorts every image: augment_seed changes nothing.
//
// Hard enough to tell models apart: softmax regression stays well below a small convolutional
// network (tests/apps/zoo/data/data_glyphs_learning_test.cpp measures both).
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "apps/zoo/data/glyphs/glyph_render.hpp"
#include "apps/zoo/data/images/memory_images.hpp"
#include "apps/zoo/data/makers.hpp"
#include "apps/zoo/data/path_number.hpp"
#include "apps/zoo/data/random_stream.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kGlyphTrainSize = 12000;
constexpr std::int64_t kMostGlyphs = 1000000;
constexpr std::int64_t kGlyphs = 10;
// Measured over the 12,000 training images; a constant so that it does not depend on N.
constexpr Normalization kGlyphNormalization{{0.189F}, {0.224F}};
constexpr std::uint64_t kGlyphTrainKey = 0x676c797068730001;
constexpr std::uint64_t kGlyphTestKey = 0x676c797068730002;

std::vector<std::uint8_t> balanced_labels(std::uint64_t key, std::int64_t count) {
  std::vector<std::uint8_t> labels;
  while (static_cast<std::int64_t>(labels.size()) < count) {
    std::array<std::uint8_t, kGlyphs> block{};
    std::iota(block.begin(), block.end(), std::uint8_t{0});
    RandomStream random(mix_seed(key, labels.size()));
    for (std::int64_t i = kGlyphs - 1; i > 0; --i) std::swap(block[i], block[random.below(i + 1)]);
    labels.insert(labels.end(), block.begin(), block.end());
  }
  labels.resize(count);
  return labels;
}

LabelledPixels render_split(std::uint64_t key, std::int64_t count) {
  constexpr std::int64_t kPixels = kGlyphSide * kGlyphSide;
  LabelledPixels split;
  split.labels = balanced_labels(mix_seed(key, 0), count);
  split.pixels.resize(count * kPixels);
  const std::uint64_t images = mix_seed(key, 1);
  for (std::int64_t i = 0; i < count; ++i) {
    RandomStream random(mix_seed(images, static_cast<std::uint64_t>(i)));
    render_glyph(split.labels[i], random, split.pixels.data() + i * kPixels);
  }
  return split;
}

}  // namespace

MadeDataSet make_glyphs(const std::string& path, const DataOptions& /*options*/) {
  auto train_size = path_number("glyphs", path, kGlyphTrainSize, kGlyphs, kMostGlyphs);
  if (!train_size) return train_size.error();
  MemoryImages::Parts parts;
  parts.name = "glyphs";
  parts.classes = kGlyphs;
  parts.shape = {1, kGlyphSide, kGlyphSide};
  parts.normalization = kGlyphNormalization;
  parts.train = render_split(kGlyphTrainKey, *train_size);
  parts.test = render_split(kGlyphTestKey, std::max(kGlyphs, *train_size / 6));
  return MadeDataSet(std::make_shared<MemoryImages>(std::move(parts)));
}

}  // namespace grapevine
