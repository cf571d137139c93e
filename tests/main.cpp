// Entry point of every test binary: one thread per operation, so that results do not depend on the
// number of cores.
#include <gtest/gtest.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  torch::set_num_threads(1);
  return RUN_ALL_TESTS();
}
