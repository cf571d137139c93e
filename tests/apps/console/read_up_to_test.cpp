#include "apps/console/read_up_to.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace grapevine {
namespace read_up_to_test {

// Each byte says where it is.
std::string numbered(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 37 + i / 251);
  return text;
}

TEST(ReadUpTo, IsTheTextOrOneByteMoreThanTheLimit) {
  for (const std::size_t most : {0, 1, 100, 4095, 4096, 4097, 20'000})
    for (const std::size_t size : {0, 1, 99, 100, 101, 4095, 4096, 4097, 8192, 8193, 50'000}) {
      std::istringstream in(numbered(size));
      EXPECT_TRUE(read_up_to(in, most) == numbered(std::min(size, most + 1)))
          << size << " bytes, at most " << most;
    }
}

TEST(ReadUpTo, TakesNoMemoryThatTheTextDoesNotNeed) {
  std::istringstream in(numbered(100));
  EXPECT_LE(read_up_to(in, std::size_t{1} << 30).capacity(), std::size_t{1} << 14);
}

}  // namespace read_up_to_test
}  // namespace grapevine
