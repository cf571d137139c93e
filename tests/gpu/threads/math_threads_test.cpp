// What LibTorch's operations need of the system.
#include "gpu/threads/math_threads.hpp"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

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
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

// What these tests need; null: all is there.
const char* missing() {
#ifdef __SANITIZE_ADDRESS__
  return "AddressSanitizer needs more address space than the limit leaves";
#else
  const bool openblas = ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads") != nullptr;
  return openblas ? nullptr : "LibTorch multiplies without OpenBLAS here";
#endif
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

// 0: a product that has its memory gets on where there is none for a second one.
[[noreturn]] void try_after_it_was_taken() {
  if (!take_product_memory()) std::_Exit(1);
  const rlim_t limit = address_space_in_use() + 50'000'000;
  const rlimit few{limit, limit};
  if (::setrlimit(RLIMIT_AS, &few) != 0) std::_Exit(2);
  if (check_product_memory(1)) std::_Exit(3);
  ::alarm(60);  // which ends a product that waits for memory
  const at::Tensor factor = at::ones({256, 256});
  std::_Exit(factor.mm(factor)[0][0].item<float>() == 256 ? 0 : 4);
}

TEST(ProductMemory, IsKeptOnceItIsTaken) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // no product was computed there yet
  if (const char* reason = missing()) GTEST_SKIP() << reason;
  EXPECT_EXIT(try_after_it_was_taken(), testing::ExitedWithCode(0), "");
}

TEST(ProductMemory, IsMissedBeforeAProductWaitsForIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // no product was computed there yet
  if (const char* reason = missing()) GTEST_SKIP() << reason;
  EXPECT_TRUE(check_product_memory(1).ok());
  EXPECT_EXIT(try_with_little_space(), testing::ExitedWithCode(0), "");
}

}  // namespace math_threads_test
}  // namespace grapevine
