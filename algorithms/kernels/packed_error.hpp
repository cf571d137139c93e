// The error for a packed vector that a compressor cannot have made, and a check for it.
#pragma once
#include <cstdint>
#include <string>

#include "messages/expected.hpp"
#include "messages/frozen_tensor.hpp"

namespace grapevine {

inline Error bad_packed(const std::string& what) {
  return {Errc::protocol, "packed vector refused: " + what +
                              "; the sender runs another version or wiring, or the bytes were "
                              "damaged"};
}

// [n] of `dtype`, on `device`.
inline bool is_flat_tensor(const FrozenTensor& t, at::ScalarType dtype, std::int64_t n,
                           at::Device device = at::kCPU) {
  return t.defined() && t.dtype() == dtype && t.sizes().size() == 1 && t.numel() == n &&
         t.device() == device;
}

}  // namespace grapevine
