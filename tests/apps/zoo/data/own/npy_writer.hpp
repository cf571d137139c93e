// .npy files for tests, as NumPy writes them.
#pragma once
#include <ATen/ATen.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace grapevine::testing_apps {

// The bytes of a file with that header's dict and those values.
inline std::string npy_bytes(const std::string& dict, const std::string& values, int version = 1) {
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::string header = dict;
  while ((8 + length_bytes + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  for (std::size_t i = 0; i < length_bytes; ++i)
    bytes += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return bytes + header + values;
}

inline std::string npy_type(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return "|u1";
    case at::kInt:
      return "<i4";
    case at::kLong:
      return "<i8";
    case at::kDouble:
      return "<f8";
    default:
      return "<f4";
  }
}

inline void write_npy(const std::filesystem::path& path, const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  std::string shape;
  for (const std::int64_t side : values.sizes()) shape += std::to_string(side) + ", ";
  const std::string dict = "{'descr': '" + npy_type(values.scalar_type()) +
                           "', 'fortran_order': False, 'shape': (" + shape + "), }";
  const std::string bytes(static_cast<const char*>(values.data_ptr()), values.nbytes());
  std::ofstream(path, std::ios::binary) << npy_bytes(dict, bytes);
}

}  // namespace grapevine::testing_apps
