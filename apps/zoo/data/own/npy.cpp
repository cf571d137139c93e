// npy:DIR: the arrays train_x.npy, train_y.npy, test_x.npy and test_y.npy of a folder, mapped. A
// folder without test files has no test split.
#include <filesystem>

#include "apps/zoo/data/makers.hpp"
#include "apps/zoo/data/own/array_data.hpp"
#include "apps/zoo/data/own/npy_file.hpp"

namespace grapevine {

MadeDataSet make_npy(const std::string& path, const DataOptions& /*options*/) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (!fs::is_directory(path, none))
    return bad_input("npy:" + path + ": there is no such folder: check the path");
  Arrays arrays;
  at::Tensor* const parts[] = {&arrays.train_x, &arrays.train_y, &arrays.test_x, &arrays.test_y};
  const bool tested = fs::exists(fs::path(path) / "test_x.npy", none) ||
                      fs::exists(fs::path(path) / "test_y.npy", none);
  for (std::size_t i = 0; i < kArrayNames.size(); ++i) {
    if (i >= 2 && !tested) break;
    auto array = map_npy((fs::path(path) / (kArrayNames[i] + std::string(".npy"))).string());
    if (!array) return array.error();
    *parts[i] = *std::move(array);
  }
  return make_array_data("npy", "npy:" + path, std::move(arrays));
}

}  // namespace grapevine
