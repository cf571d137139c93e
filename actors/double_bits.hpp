// Doubles in messages between processes.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include <caf/error.hpp>
#include <caf/meta/load_callback.hpp>

namespace grapevine {

// Views doubles of a message as their bits, for its inspect(). CAF packs them by arithmetic: a NaN
// (a figure that was not measured) arrives as -1, and an infinity is never done.
template <std::size_t N>
class DoubleBits {
 public:
  template <class... Doubles>
  explicit DoubleBits(Doubles&... doubles) : doubles_{&doubles...} {
    static_assert(sizeof...(doubles) == N, "one place for each");
    for (std::size_t i = 0; i < N; ++i) std::memcpy(&bits[i], doubles_[i], sizeof(double));
  }
  // For caf::meta::load_callback: once `bits` have been read.
  caf::error restore() {
    for (std::size_t i = 0; i < N; ++i) std::memcpy(doubles_[i], &bits[i], sizeof(double));
    return {};
  }

  std::array<std::uint64_t, N> bits{};

 private:
  std::array<double*, N> doubles_;
};

// The same for a list.
class DoubleListBits {
 public:
  explicit DoubleListBits(std::vector<double>& doubles) : bits(doubles.size()), doubles_(doubles) {
    for (std::size_t i = 0; i < bits.size(); ++i)
      std::memcpy(&bits[i], &doubles_[i], sizeof(double));
  }
  caf::error restore() {
    doubles_.resize(bits.size());
    for (std::size_t i = 0; i < bits.size(); ++i)
      std::memcpy(&doubles_[i], &bits[i], sizeof(double));
    return {};
  }

  std::vector<std::uint64_t> bits;

 private:
  std::vector<double>& doubles_;
};

template <class... Doubles>
DoubleBits(Doubles&...) -> DoubleBits<sizeof...(Doubles)>;

}  // namespace grapevine
