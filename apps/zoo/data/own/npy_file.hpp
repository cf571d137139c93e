// NumPy's array files (.npy):
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "messages/expected.hpp"

namespace grapevine {

// The array as a tensor of its type and shape, which maps the file: nothing is read yet, and
// nothing may be written to it. Versions 1 to 3; bool, int8 to int64, uint8, float16 to float64;
// uint16 and uint32 are copied to int32 and int64, which LibTorch has. Errors (bad_input) name the
// file: absent, no such array, another type, Fortran order, big endian, a size that does not match.
Expected<at::Tensor> map_npy(const std::string& path);

// The same for bytes that hold a whole file, and outlive the tensor with `owner`.
Expected<at::Tensor> parse_npy(const std::string& path, const std::uint8_t* data, std::size_t size,
                               std::shared_ptr<const void> owner);

}  // namespace grapevine
