// Copies of a shipped kernel with a flaw each (mutants.cmake), as their own units register them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace racecheck {

// top_k.hpp's functions, of the copy.
struct Mutant {
  const char* name;
  const char* kernel;  // where the flaw is; "": there is none
  std::size_t (*workspace_bytes)(std::int64_t d, std::int64_t k);
  bool (*top_k)(std::uint32_t* indices, float* values, std::uint32_t* count, float* x,
                std::int64_t d, std::int64_t k, void* workspace);
};

inline std::vector<Mutant>& mutants() {
  static std::vector<Mutant> all;
  return all;
}
inline bool add_mutant(const Mutant& mutant) { return mutants().push_back(mutant), true; }

}  // namespace racecheck
