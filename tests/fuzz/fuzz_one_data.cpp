#include <string>
#include <string_view>

#include "apps/zoo/data/images/image_file.hpp"
#include "tests/fuzz/data_property.hpp"
#include "tests/fuzz/scratch_file.hpp"

namespace grapevine {
namespace {

// Two files under all names that the readers look for.
class DataFolder {
 public:
  DataFolder() {
    for (const std::string split : {"train", "t10k"}) {
      folder_.add(split + "-images-idx3-ubyte", first);
      folder_.add(split + "-labels-idx1-ubyte", second);
    }
    for (const char* batch : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4",
                              "data_batch_5", "test_batch"})
      folder_.add(std::string(batch) + ".bin", first);
  }

  std::string path() const { return folder_.path(); }

  fuzzing::ScratchFile first, second;

 private:
  const fuzzing::ScratchFolder folder_{"data"};
};

// Small ones alone: the size that a header states is bounded by ImageFile::kMaxPixels.
void check_image(const std::string& path) {
  constexpr std::int64_t kMostPixels = 1 << 12;
  const auto file = ImageFile::open(path);
  if (!file) return check_one_line(file.error());
  if (std::int64_t{file->extent().width} * file->extent().height > kMostPixels) return;
  for (const int reduction : {1, 8}) {
    const auto image = file->decode(reduction);
    if (!image) return check_one_line(image.error());
    GRAPEVINE_CHECK(
        image->rgb.size() ==
            std::size_t{3} * static_cast<unsigned>(image->extent.width * image->extent.height),
        "pixels of another size");
  }
}

// Files of whole samples, whose lengths a fuzzer seldom keeps: the input is their labels.
constexpr std::size_t kMostLabels = 4;

std::string cifar10_of(std::string_view labels) {
  std::string file;
  for (const char label : labels.substr(0, kMostLabels)) file += label + std::string(3072, label);
  return file;
}

std::string idx_of(char dimensions, std::size_t count) {
  return std::string("\0\0\x08", 3) + dimensions + std::string(3, '\0') + static_cast<char>(count);
}

void fill_mnist(DataFolder& folder, std::string_view labels) {
  const std::string_view used = labels.substr(0, kMostLabels);
  const std::string side = std::string(3, '\0') + static_cast<char>(28);
  folder.first.fill(idx_of(3, used.size()) + side + side +
                    std::string(used.size() * 28 * 28, '\x7f'));
  folder.second.fill(idx_of(1, used.size()) + std::string(used));
}

}  // namespace

void fuzz_one_data(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return;
  static DataFolder folder;
  std::string_view bytes = fuzzing::text_of(data, size).substr(1);
  switch (data[0] % 8) {
    case 0:
      folder.first.fill(bytes);
      return fuzzing::check_data_set(make_text(folder.first.path(), {}));
    case 1: {
      // The images, then eight bytes and one for each image.
      const std::size_t labels = bytes.size() <= 24 ? 0 : 8 + (bytes.size() - 24) / 785;
      folder.first.fill(bytes.substr(0, bytes.size() - labels));
      folder.second.fill(bytes.substr(bytes.size() - labels));
      return fuzzing::check_data_set(make_mnist(folder.path(), {}));
    }
    case 2:
      folder.first.fill(bytes);
      return fuzzing::check_data_set(make_cifar10(folder.path(), {}));
    case 4:
      folder.first.fill(cifar10_of(bytes));
      return fuzzing::check_data_set(make_cifar10(folder.path(), {}));
    case 5:
      fill_mnist(folder, bytes);
      return fuzzing::check_data_set(make_mnist(folder.path(), {}));
    default:
      folder.first.fill(bytes);
      return check_image(folder.first.path());
  }
}

}  // namespace grapevine
