#include <algorithm>
#include <utility>

#include "apps/zoo/data/makers.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

struct DataEntry {
  std::string name;
  const char* path_hint;  // what PATH must be; nullptr where PATH may be left out
  DataSetMaker make;
};

// The list of data sets.
std::vector<DataEntry>& all_entries() {
  static std::vector<DataEntry> entries = {
      {"cifar10",
       "a folder: cifar10:DIR with data_batch_1.bin … data_batch_5.bin and test_batch.bin",
       make_cifar10},
      {"glyphs", nullptr, make_glyphs},
      {"hyperplane", nullptr, make_hyperplane},
      {"images", "a folder: images:DIR with one folder of JPEG or PNG files per class",
       make_images},
      {"mnist",
       "a folder: mnist:DIR with train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], "
       "t10k-images-idx3-ubyte[.gz] and t10k-labels-idx1-ubyte[.gz]",
       make_mnist},
      {"noise", nullptr, make_noise},
      {"npy",
       "a folder: npy:DIR with train_x.npy, train_y.npy and, for validation, test_x.npy, "
       "test_y.npy",
       make_npy},
      {"sequences", nullptr, make_sequences},
      {"tensors",
       "a file: tensors:FILE.pt with a dict of the tensors train_x, train_y, test_x, test_y",
       make_tensors},
      {"text", "a file: text:FILE, plain or gzipped", make_text},
      {"tokens",
       "a folder: tokens:DIR[,type=uint32][,length=T] with train.bin and, for validation, val.bin",
       make_tokens},
  };
  return entries;
}

}  // namespace

Expected<void> register_data_set(const std::string& name, DataSetMaker make) {
  const std::vector<std::string> known = data_names();
  if (std::find(known.begin(), known.end(), name) != known.end())
    return bad_input("data set '" + name + "' exists already: choose another name");
  if (name.find(':') != std::string::npos)
    return bad_input("data set '" + name +
                     "': a colon separates a name from its PATH: choose another");
  all_entries().push_back({name, nullptr, std::move(make)});
  return {};
}

MadeDataSet make_data_set(const std::string& spec, const DataOptions& options) {
  GRAPEVINE_CHECK(options.decode_threads >= 1, options.decode_threads);
  // Only the first colon separates: paths may hold colons of their own.
  const std::size_t colon = spec.find(':');
  const std::string name = spec.substr(0, colon);
  const std::string path = colon == std::string::npos ? "" : spec.substr(colon + 1);
  const std::vector<DataEntry>& entries = all_entries();
  const auto entry = std::find_if(entries.begin(), entries.end(), [&](const DataEntry& candidate) {
    return name == candidate.name;
  });
  if (entry == entries.end()) return unknown_name("data set", name, data_names());
  if (entry->path_hint != nullptr && path.empty())
    return bad_input(name + " needs " + entry->path_hint);
  auto made = entry->make(path, options);
  const bool augments_itself = name == "images";
  if (!made || options.augment.usual || augments_itself) return made;
  return augmented(*std::move(made), options.augment);
}

std::vector<std::string> data_specs() {
  std::vector<std::string> specs;
  for (const DataEntry& entry : all_entries()) {
    const std::string hint = entry.path_hint == nullptr ? "" : entry.path_hint;
    const auto begin = hint.find(entry.name + ":");
    const auto end = hint.find_first_of(" ,[", begin);
    specs.push_back(begin == std::string::npos ? entry.name : hint.substr(begin, end - begin));
  }
  std::sort(specs.begin(), specs.end());
  return specs;
}

std::vector<std::string> data_names() {
  std::vector<std::string> names;
  for (const DataEntry& entry : all_entries()) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace grapevine
