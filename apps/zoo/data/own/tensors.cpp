// tensors:FILE.pt: a dict of the tensors train_x, train_y, test_x and test_y that torch.save wrote.
#include <filesystem>

#include "apps/zoo/data/makers.hpp"
#include "apps/zoo/data/own/array_data.hpp"
#include "apps/zoo/weights.hpp"

namespace grapevine {

MadeDataSet make_tensors(const std::string& path, const DataOptions& /*options*/) {
  const auto read = read_weights(path);
  const std::string needed = "torch.save(dict(train_x=…, train_y=…, test_x=…, test_y=…), FILE)";
  if (!read) {
    std::error_code none;
    const bool there = std::filesystem::is_regular_file(path, none);
    return bad_input("tensors:" + path +
                     (there ? ": holds no dict of tensors: write it with " + needed
                            : ": there is no such file: check the path"));
  }
  Arrays arrays;
  at::Tensor* const parts[] = {&arrays.train_x, &arrays.train_y, &arrays.test_x, &arrays.test_y};
  const bool tested = read->count("test_x") + read->count("test_y") > 0;
  for (std::size_t i = 0; i < kArrayNames.size(); ++i) {
    const auto found = read->find(kArrayNames[i]);
    if (found == read->end() && i >= 2 && !tested) break;
    if (found == read->end())
      return bad_input("tensors:" + path + ": has no tensor '" + kArrayNames[i] +
                       "': write the file with " + needed);
    *parts[i] = found->second.detach().cpu().contiguous();
  }
  return make_array_data("tensors", "tensors:" + path, std::move(arrays));
}

}  // namespace grapevine
