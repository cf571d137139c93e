// What LibTorch's operations need of the system.
#include "gpu/math_threads.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace grapevine {
namespace math_threads_test {

// Of this process, in bytes.
rlim_t address_space_in_use() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  return pages * 4096;
}

// 0: two threads may compute products with 400 MB to spare, and four may not. It is undone, too.
[[noreturn]] void try_with_little_space() {
  const rlim_t limit = address_space_in_use() + 400'000'000;
  const rlimit few{limit, limit};
  if (::setrlimit(RLIMIT_AS, &few) != 0) std::_Exit(1);
  for (int round = 0; round < 3; ++round)
    if (!check_product_memory(2)) std::_Exit(2);
  const Expected<void> refused = check_product_memory(4);
  if (refused || refused.error().code != Errc::failed) std::_Exit(3);
  std::_Exit(refused.error().message.find("of 4 threads, 128 MiB each") != std::string::npos ? 0
                                                                                             : 4);
}

TEST(ProductMemory, IsMissedBeforeAProductWaitsForIt) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer needs more address space than the limit leaves";
#endif
  EXPECT_TRUE(check_product_memory(1).ok());
  EXPECT_EXIT(try_with_little_space(), testing::ExitedWithCode(0), "");
}

}  // namespace math_threads_test
}  // namespace grapevine
