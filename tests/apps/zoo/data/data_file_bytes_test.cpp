#include <gtest/gtest.h>

#include <string>

#include "apps/zoo/data/file_bytes.hpp"
#include "messages/random.hpp"
#include "tests/apps/zoo/data/data_testing.hpp"

namespace grapevine {
namespace data_file_bytes_test {

TestBytes random_bytes(std::size_t size) {
  TestBytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(mix_seed(7, i));
  return bytes;
}

// Sizes about those of the pieces that are read at once.
TEST(FileBytes, AreThoseOfTheFileGzippedOrNot) {
  const TempFolder folder;
  const std::string plain = folder.file("plain"), packed = folder.file("packed");
  for (const std::size_t size : {0, 1, 16383, 16384, 16385, 32768, 65537, 1 << 20, 3'000'001}) {
    const TestBytes bytes = random_bytes(size);
    write_bytes(plain, bytes);
    write_gzip(packed, bytes);
    const auto limit = static_cast<std::int64_t>(size);
    for (const std::string& path : {plain, packed}) {
      const auto read = read_maybe_gzipped(path, limit);
      ASSERT_TRUE(read.ok()) << read.error().message;
      EXPECT_TRUE(*read == bytes) << path << ": " << size << " bytes";
      if (size > 0) {
        EXPECT_FALSE(read_maybe_gzipped(path, limit - 1).ok()) << path;
      }
    }
    EXPECT_TRUE(*read_file(plain, limit) == bytes) << size;
  }
}

}  // namespace data_file_bytes_test
}  // namespace grapevine
