// cifar10:DIR: the binary version of CIFAR-10 (Krizhevsky 2009): records of one label byte and
// 3 × 32 × 32 bytes (red, green, blue planes). Normalised per channel. Augmentation (He et al.
// 2016, section 4.2): a random crop after padding by 4, mirrored half of the time.
#include <filesystem>
#include <utility>

#include "apps/zoo/data/file_bytes.hpp"
#include "apps/zoo/data/images/memory_images.hpp"
#include "apps/zoo/data/makers.hpp"

namespace grapevine {
namespace {

constexpr PixelShape kShape{3, 32, 32};
constexpr std::size_t kPixels = 3 * 32 * 32;
constexpr std::size_t kRecord = 1 + kPixels;
constexpr int kCifarClasses = 10;
constexpr int kCifarPadding = 4;
constexpr std::int64_t kCifarLimit = std::int64_t{1}
                                     << 30;  // bytes of one file; the original: 31 MB
constexpr Normalization kCifarNormalization{{0.4914F, 0.4822F, 0.4465F},
                                            {0.2470F, 0.2435F, 0.2616F}};

// `folder`, or the folder that the archive unpacks to inside it.
Expected<std::filesystem::path> find_batches(const std::string& folder) {
  const std::filesystem::path given(folder);
  for (const std::filesystem::path& candidate : {given, given / "cifar-10-batches-bin"}) {
    std::error_code failure;
    if (std::filesystem::is_regular_file(candidate / "test_batch.bin", failure)) return candidate;
  }
  return bad_input("cifar10: no file test_batch.bin in '" + folder + "' or in '" +
                   (given / "cifar-10-batches-bin").string() +
                   "': give the folder of the binary batches as cifar10:DIR");
}

// Appends the records of one file.
Expected<void> append(const std::string& path, LabelledPixels& split) {
  auto bytes = read_file(path, kCifarLimit);
  if (!bytes) return bytes.error();
  if (bytes->empty() || bytes->size() % kRecord != 0)
    return bad_input(path + ": byte " + std::to_string(bytes->size()) +
                     ": expected whole records of 3073 bytes, found the end of the file " +
                     std::to_string(bytes->size() % kRecord) + " bytes into one");
  for (std::size_t at = 0; at < bytes->size(); at += kRecord) {
    const std::uint8_t label = (*bytes)[at];
    if (label >= kCifarClasses)
      return bad_input(path + ": byte " + std::to_string(at) +
                       ": expected a label from 0 to 9, found " + std::to_string(label));
    split.labels.push_back(label);
    const auto pixels = bytes->begin() + static_cast<std::ptrdiff_t>(at) + 1;
    split.pixels.insert(split.pixels.end(), pixels, pixels + kPixels);
  }
  return {};
}

}  // namespace

MadeDataSet make_cifar10(const std::string& path, const DataOptions& /*options*/) {
  auto folder = find_batches(path);
  if (!folder) return folder.error();
  MemoryImages::Parts parts;
  parts.name = "cifar10";
  parts.classes = kCifarClasses;
  parts.shape = kShape;
  parts.normalization = kCifarNormalization;
  parts.padding = kCifarPadding;
  for (int i = 1; i <= 5; ++i) {
    const std::string name = "data_batch_" + std::to_string(i) + ".bin";
    if (auto done = append((*folder / name).string(), parts.train); !done) return done.error();
  }
  if (auto done = append((*folder / "test_batch.bin").string(), parts.test); !done)
    return done.error();
  return MadeDataSet(std::make_shared<MemoryImages>(std::move(parts)));
}

}  // namespace grapevine
