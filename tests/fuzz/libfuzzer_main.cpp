// The entry of libFuzzer: one program for each target, which the build names.
#include "tests/fuzz/fuzz_targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  grapevine::GRAPEVINE_FUZZ_TARGET(data, size);
  return 0;
}
