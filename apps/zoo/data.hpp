// The data sets that `--data NAME[:PATH]` names. One file each in apps/zoo/data.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/data/data_set.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct DataOptions {
  std::uint64_t seed = 1;  // data that is drawn anew for each run (hyperplane); files ignore it
  int decode_threads = 1;  // threads that decode one batch of `images`; >= 1
};

// clang-format off
// Makes the data set of `spec` = NAME[:PATH]:
//   glyphs[:N]        rendered digits [1, 28, 28], 10 classes; N training images (12,000)
//   hyperplane[:D]    regression on D standard normal inputs (8,192)
//   noise[:SIDE]      normal noise [3, SIDE, SIDE] (224), 1,000 classes: for throughput
//   sequences[:N]     time series of 6 to 102 steps, [steps, 9], 6 classes; N training samples (4,096)
//   mnist:DIR         IDX files, plain or gzipped, [1, 28, 28]
//   cifar10:DIR       binary batches, [3, 32, 32]
//   images:DIR        JPEG and PNG files, one folder per class, [3, height, width]
//   text:FILE         characters, in windows
// Equal arguments and files give equal batches, on any number of threads. Errors: an unknown name,
// a PATH that is missing or of no use, files that are absent or damaged.
Expected<std::shared_ptr<const DataSet>> make_data_set(const std::string& spec,
                                                       const DataOptions& options);
// clang-format on

// Makes a data set from what follows `NAME:` in the specification; empty where nothing does.
using DataSetMaker = std::function<Expected<std::shared_ptr<const DataSet>>(
    const std::string& path, const DataOptions& options)>;

// Adds a data set from outside. Not thread-safe. Errors (bad_input): a name that is taken or has a
// colon.
Expected<void> register_data_set(const std::string& name, DataSetMaker make);

// Names that make_data_set() knows, sorted.
std::vector<std::string> data_names();

}  // namespace grapevine
