// What the program's symbol table and line table say of its addresses.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace racecheck {

struct Variable {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  std::string name;  // "count_digit(…)::counts"
};

// The variables of functions that each thread has of its own, here those of the calling thread:
// what
// __shared__ makes of them. Throws std::runtime_error where the program has no symbol table.
std::vector<Variable> shared_variables();

// Where the program is loaded: addresses of code less this are those of its tables.
std::uintptr_t load_bias();

// The name of the function at an address; its first byte counts. "" where it is not known.
std::string function_at(std::uintptr_t address);

// "top_k.cu:191 (count_digit)", with the functions inlined there; by addr2line, and the function
// alone where that is not installed.
std::string line_of(std::uintptr_t address);

}  // namespace racecheck
