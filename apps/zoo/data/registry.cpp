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
      {"sequences", nullptr, make_sequences},
      {"text", "a file: text:FILE, plain or gzipped", make_text},
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
  return entry->make(path, options);
}

std::vector<std::string> data_names() {
  std::vector<std::string> names;
  for (const DataEntry& entry : all_entries()) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace grapevine
