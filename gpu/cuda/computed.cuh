// Iterators for CUB's algorithms: elements that are computed when they are read, and an output of
// bounded length.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace grapevine::cuda {

// Element i is f(i); f: T(std::int64_t) const, on the device.
template <class T, class F>
struct Computed {
  using iterator_category = std::random_access_iterator_tag;
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using pointer = const T*;
  using reference = T;

  F f;
  std::int64_t at = 0;

  __host__ __device__ Computed operator+(std::int64_t n) const { return {f, at + n}; }
  __host__ __device__ Computed operator-(std::int64_t n) const { return {f, at - n}; }
  __host__ __device__ std::ptrdiff_t operator-(const Computed& other) const {
    return static_cast<std::ptrdiff_t>(at - other.at);
  }
  __host__ __device__ Computed& operator+=(std::int64_t n) { return at += n, *this; }
  __host__ __device__ Computed& operator++() { return ++at, *this; }
  __host__ __device__ bool operator==(const Computed& other) const { return at == other.at; }
  __host__ __device__ bool operator!=(const Computed& other) const { return at != other.at; }
  __device__ T operator*() const { return f(at); }
  __device__ T operator[](std::int64_t n) const { return f(at + n); }
};

// Writes to[i] for i below `size`, and nothing beyond.
template <class T>
struct Bounded {
  class Element {
   public:
    __host__ __device__ explicit Element(T* to) : to_(to) {}
    __device__ const Element& operator=(T value) const {
      if (to_ != nullptr) *to_ = value;
      return *this;
    }

   private:
    T* to_;
  };
  using iterator_category = std::random_access_iterator_tag;
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using pointer = Element*;
  using reference = Element;

  T* to;
  std::int64_t size;
  std::int64_t at = 0;

  __host__ __device__ Bounded operator+(std::int64_t n) const { return {to, size, at + n}; }
  __host__ __device__ Bounded& operator+=(std::int64_t n) { return at += n, *this; }
  __device__ Element operator*() const { return (*this)[0]; }
  __device__ Element operator[](std::int64_t n) const {
    return Element(at + n < size ? to + at + n : nullptr);
  }
};

}  // namespace grapevine::cuda
