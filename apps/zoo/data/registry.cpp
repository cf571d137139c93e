#include <algorithm>
#include <array>

#include "apps/zoo/data/makers.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

struct DataEntry {
  const char* name;
  const char* path_hint;  // what PATH must be; nullptr where PATH may be left out
  MadeDataSet (*make)(const std::string& path, const DataOptions& options);
};

constexpr std::array<DataEntry, 8> kEntries{{
    {"cifar10", "a folder: cifar10:DIR with data_batch_1.bin … data_batch_5.bin and test_batch.bin",
     make_cifar10},
    {"glyphs", nullptr, make_glyphs},
    {"hyperplane", nullptr, make_hyperplane},
    {"images", "a folder: images:DIR with one folder of JPEG or PNG files per class", make_images},
    {"mnist",
     "a folder: mnist:DIR with train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], "
     "t10k-images-idx3-ubyte[.gz] and t10k-labels-idx1-ubyte[.gz]",
     make_mnist},
    {"noise", nullptr, make_noise},
    {"sequences", nullptr, make_sequences},
    {"text", "a file: text:FILE, plain or gzipped", make_text},
}};

}  // namespace

MadeDataSet make_data_set(const std::string& spec, const DataOptions& options) {
  GRAPEVINE_CHECK(options.decode_threads >= 1, options.decode_threads);
  // Only the first colon separates: paths may hold colons of their own.
  const std::size_t colon = spec.find(':');
  const std::string name = spec.substr(0, colon);
  const std::string path = colon == std::string::npos ? "" : spec.substr(colon + 1);
  const auto entry =
      std::find_if(kEntries.begin(), kEntries.end(),
                   [&](const DataEntry& candidate) { return name == candidate.name; });
  if (entry == kEntries.end()) return unknown_name("data set", name, data_names());
  if (entry->path_hint != nullptr && path.empty())
    return bad_input(name + " needs " + entry->path_hint);
  return entry->make(path, options);
}

std::vector<std::string> data_names() {
  std::vector<std::string> names;
  for (const DataEntry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace grapevine
