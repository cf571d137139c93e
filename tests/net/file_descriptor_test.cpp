#include "net/file_descriptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <utility>

namespace grapevine {
namespace file_descriptor_test {

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) >= 0; }

DescriptorPair pipe() {
  return descriptor_pair([](int* ends) { return ::pipe2(ends, O_CLOEXEC); });
}

TEST(FileDescriptor, ClosesWhatItOwns) {
  int reads = -1;
  {
    const DescriptorPair ends = pipe();
    reads = ends[0].get();
    ASSERT_TRUE(is_open(reads));
  }
  EXPECT_FALSE(is_open(reads));
}

TEST(FileDescriptor, AMoveKeepsTheDescriptorOpenAndClosesTheOldOne) {
  DescriptorPair ends = pipe();
  const int reads = ends[0].get(), writes = ends[1].get();
  ends[0] = std::move(ends[1]);
  EXPECT_FALSE(is_open(reads));
  EXPECT_TRUE(is_open(writes));
  EXPECT_EQ(ends[0].get(), writes);
  EXPECT_LT(ends[1].get(), 0);  // NOLINT(bugprone-use-after-move): a moved one owns none
}

TEST(FileDescriptor, AReleasedOneStaysOpen) {
  DescriptorPair ends = pipe();
  const int reads = ends[0].release();
  ends = {};
  EXPECT_TRUE(is_open(reads));
  ::close(reads);
}

TEST(FileDescriptor, ARefusedPairIsEmptyAndKeepsTheReason) {
  const DescriptorPair ends = descriptor_pair([](int*) {
    errno = EMFILE;
    return -1;
  });
  EXPECT_EQ(errno, EMFILE);
  EXPECT_LT(ends[0].get(), 0);
  EXPECT_LT(ends[1].get(), 0);
}

}  // namespace file_descriptor_test
}  // namespace grapevine
