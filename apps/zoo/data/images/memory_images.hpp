// A classification data set whose images all fit into memory as bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/zoo/data/images/pixels.hpp"
#include "gpu/data/data_set.hpp"

namespace grapevine {

// n images [n][channels][height][width] and their n labels.
struct LabelledPixels {
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
};

class MemoryImages final : public DataSet {
 public:
  struct Parts {
    std::string name;
    std::int64_t classes = 0;
    PixelShape shape;
    Normalization normalization;
    int padding = 0;  // of the random crops, pixels; 0: the data set does not augment
    LabelledPixels train;
    LabelledPixels test;
  };

  // REQUIRES: parts.*.pixels hold as many images as there are labels.
  explicit MemoryImages(Parts parts);

  const DataInfo& info() const override { return info_; }
  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t augment_seed) const override;

 private:
  // Constant after construction.
  Parts parts_;
  DataInfo info_;
};

}  // namespace grapevine
