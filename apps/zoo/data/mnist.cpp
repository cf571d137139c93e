// mnist:DIR: the four IDX files of MNIST (LeCun, Cortes, Burges), or of a data set of the same form
// such as Fashion-MNIST, plain or gzipped. IDX: big-endian u32 magic (0x0000 08 <dimensions>), one
// u32 per dimension, then bytes. Normalised with MNIST's mean and deviation; no augmentation.
#include <filesystem>
#include <sstream>
#include <utility>

#include "apps/zoo/data/file_bytes.hpp"
#include "apps/zoo/data/images/memory_images.hpp"
#include "apps/zoo/data/makers.hpp"

namespace grapevine {
namespace {

constexpr std::uint32_t kImageMagic = 0x00000803;
constexpr std::uint32_t kLabelMagic = 0x00000801;
constexpr std::uint32_t kMnistSide = 28;
constexpr std::size_t kImageHeader = 16;
constexpr std::size_t kLabelHeader = 8;
constexpr int kDigits = 10;
constexpr std::int64_t kMnistLimit = std::int64_t{1}
                                     << 31;  // bytes of one file; MNIST's largest: 47 MB
constexpr Normalization kMnistNormalization{{0.1307F}, {0.3081F}};

Error at_byte(const std::string& path, std::size_t offset, const std::string& expected,
              const std::string& found) {
  return bad_input(path + ": byte " + std::to_string(offset) + ": expected " + expected +
                   ", found " + found);
}

std::string hex(std::uint32_t value) {
  std::ostringstream out;
  out << "0x" << std::hex << value;
  return out.str();
}

// The plain file where both are there.
Expected<std::string> find_idx(const std::string& folder, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    const std::string path = (std::filesystem::path(folder) / (name + ending)).string();
    std::error_code failure;
    if (std::filesystem::is_regular_file(path, failure)) return path;
  }
  return bad_input("mnist: no file " + name + " or " + name + ".gz in '" + folder +
                   "': give the folder of the four IDX files as mnist:DIR");
}

class IdxFile {
 public:
  static Expected<IdxFile> open(const std::string& path, std::uint32_t magic,
                                std::size_t header_size) {
    auto bytes = read_maybe_gzipped(path, kMnistLimit);
    if (!bytes) return bytes.error();
    IdxFile file(path, std::move(*bytes));
    if (file.bytes_.size() < header_size)
      return at_byte(path, file.bytes_.size(),
                     "a header of " + std::to_string(header_size) + " bytes",
                     "the end of the file");
    if (file.word(0) != magic)
      return at_byte(path, 0, "the magic number " + hex(magic), hex(file.word(0)));
    return file;
  }

  // Big-endian u32. REQUIRES: offset + 4 <= header size.
  std::uint32_t word(std::size_t offset) const {
    return std::uint32_t{bytes_[offset]} << 24 | std::uint32_t{bytes_[offset + 1]} << 16 |
           std::uint32_t{bytes_[offset + 2]} << 8 | std::uint32_t{bytes_[offset + 3]};
  }

  // What follows the header: exactly `items` items of `item_size` bytes.
  Expected<Bytes> body(std::size_t header_size, std::size_t items, std::size_t item_size) && {
    const std::size_t wanted = header_size + items * item_size;
    if (bytes_.size() < wanted)
      return at_byte(path_, bytes_.size(),
                     std::to_string(wanted) + " bytes for the " + std::to_string(items) +
                         " items that byte 4 announces",
                     "the end of the file");
    if (bytes_.size() > wanted)
      return at_byte(path_, wanted, "the end of the file",
                     std::to_string(bytes_.size() - wanted) + " more bytes");
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(header_size));
    return std::move(bytes_);
  }

 private:
  IdxFile(std::string path, Bytes bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}

  std::string path_;
  Bytes bytes_;
};

Expected<Bytes> read_images(const std::string& path) {
  auto file = IdxFile::open(path, kImageMagic, kImageHeader);
  if (!file) return file.error();
  for (const std::size_t offset : {std::size_t{8}, std::size_t{12}})
    if (file->word(offset) != kMnistSide)
      return at_byte(path, offset, offset == 8 ? "28 rows" : "28 columns",
                     std::to_string(file->word(offset)));
  const std::size_t count = file->word(4);
  if (count == 0) return at_byte(path, 4, "at least one image", "0");
  return std::move(*file).body(kImageHeader, count, std::size_t{kMnistSide} * kMnistSide);
}

Expected<Bytes> read_labels(const std::string& path, std::size_t images) {
  auto file = IdxFile::open(path, kLabelMagic, kLabelHeader);
  if (!file) return file.error();
  const std::size_t count = file->word(4);
  if (count != images)
    return at_byte(path, 4, std::to_string(images) + " labels, one for each image",
                   std::to_string(count));
  auto labels = std::move(*file).body(kLabelHeader, count, 1);
  if (!labels) return labels.error();
  for (std::size_t i = 0; i < count; ++i)
    if ((*labels)[i] >= kDigits)
      return at_byte(path, kLabelHeader + i, "a label from 0 to 9", std::to_string((*labels)[i]));
  return labels;
}

Expected<LabelledPixels> read_split(const std::string& folder, const std::string& prefix) {
  auto image_path = find_idx(folder, prefix + "-images-idx3-ubyte");
  if (!image_path) return image_path.error();
  auto label_path = find_idx(folder, prefix + "-labels-idx1-ubyte");
  if (!label_path) return label_path.error();
  auto pixels = read_images(*image_path);
  if (!pixels) return pixels.error();
  auto labels = read_labels(*label_path, pixels->size() / (kMnistSide * kMnistSide));
  if (!labels) return labels.error();
  return LabelledPixels{std::move(*pixels), std::move(*labels)};
}

}  // namespace

MadeDataSet make_mnist(const std::string& path, const DataOptions& /*options*/) {
  auto train = read_split(path, "train");
  if (!train) return train.error();
  auto test = read_split(path, "t10k");
  if (!test) return test.error();
  MemoryImages::Parts parts;
  parts.name = "mnist";
  parts.classes = kDigits;
  parts.shape = {1, kMnistSide, kMnistSide};
  parts.normalization = kMnistNormalization;
  parts.train = std::move(*train);
  parts.test = std::move(*test);
  return MadeDataSet(std::make_shared<MemoryImages>(std::move(parts)));
}

}  // namespace grapevine
