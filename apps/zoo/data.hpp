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

// Random changes of images in training.
struct Augmentation {
  bool usual = true;          // those of the data set; else exactly the following
  bool crop = false;          // of the image padded by an eighth of its side, black
  bool flip = false;          // left to right, half of the time
  bool resized_crop = false;  // 8 to 100 % of the area, sides 3:4 to 4:3, in the image's size
};

// "auto", "none", or a list of crop, flip and random-resized-crop, with commas. Errors (bad_input):
// --augment names another one, or both crops.
Expected<Augmentation> parse_augmentation(const std::string& text);

struct DataOptions {
  std::uint64_t seed = 1;  // data that is drawn anew for each run (hyperplane); files ignore it
  int decode_threads = 1;  // threads that decode one batch of `images`; >= 1
  Augmentation augment;
  bool skip_damaged = false;  // damaged files are no error before their sample is read
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
//   npy:DIR           arrays train_x.npy, train_y.npy, test_x.npy, test_y.npy, mapped
//   tensors:FILE.pt   the same as a dict of tensors that torch.save wrote
//   tokens:DIR        train.bin and val.bin of uint16 tokens, or as DIR,type=uint32,length=T
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

// `data` with images that are changed at random where batch() gets a seed: crops and flips are a
// pure function of the seed and the sample. Errors (bad_input): its samples are no images.
Expected<std::shared_ptr<const DataSet>> augmented(std::shared_ptr<const DataSet> data,
                                                   const Augmentation& augmentation);

// Why a sample cannot be used: what reading it says, or that a value is not finite. Empty: it can.
std::string damage_of(const DataSet& data, Split split, std::int64_t index);

// `data` with the next sample that can be used in the place of each that cannot, with a warning for
// each of the first ones.
std::shared_ptr<const DataSet> without_damaged(std::shared_ptr<const DataSet> data);

// What can follow a name: "text:FILE".
std::vector<std::string> data_specs();

// Names that make_data_set() knows, sorted.
std::vector<std::string> data_names();

}  // namespace grapevine
