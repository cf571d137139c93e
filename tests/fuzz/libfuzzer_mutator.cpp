// Half of the mutations keep the form of the input (mutators/), the other half are libFuzzer's own,
// of its bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/mutators/mutators.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  grapevine::fuzzing::Rng rng(seed);
  if (rng() % 2 == 0) return LLVMFuzzerMutate(data, size, most);
  const std::string mutant =
      grapevine::fuzzing::GRAPEVINE_FUZZ_MUTATOR({reinterpret_cast<const char*>(data), size}, rng);
  const std::size_t kept = std::min(mutant.size(), most);
  std::copy_n(mutant.begin(), kept, data);
  return kept;
}
