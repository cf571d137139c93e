// read_file: what a test looks for in a file.
#pragma once
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace grapevine {

// Its bytes; none where it cannot be read.
inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace grapevine
