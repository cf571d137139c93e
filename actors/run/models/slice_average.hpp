// SliceAverage: the mean of the ranks' last models, one slice of them after the other.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "messages/frozen_tensor.hpp"

namespace grapevine {

// The model is the mean over the workers; beside servers its parameters are the servers' slices one
// after the other, and its buffers the workers' mean. Sums are taken in double precision in the
// order of the sources, so that the mean of equal models is that model, bit for bit, and slices of
// any size give the same bits. Memory: the result and one slice of each source. Not thread-safe.
class SliceAverage {
 public:
  // Of one rank: so many parameters, and then so many buffers.
  struct Source {
    bool server = false;
    std::int64_t parameters = 0, buffers = 0;
  };
  // The next numbers [begin, begin + count) of the sources that have any, in their own counting.
  struct Piece {
    std::size_t source = 0;
    std::int64_t begin = 0;
  };
  struct Slice {
    std::int64_t count = 0;
    std::vector<Piece> pieces;
  };

  // `sources`: by rank, a worker at least, servers behind; sizes that fit each other. `most`: > 0,
  // elements of a slice.
  SliceAverage(std::vector<Source> sources, std::int64_t most);

  // None: all are added.
  const std::optional<Slice>& slice() const { return slice_; }
  // The values of slice(), in the order of its pieces, count elements each.
  void add(const std::vector<const float*>& values);

  // REQUIRES of these three: all slices are added. Call the first two once.
  FrozenTensor z();
  FrozenTensor buffers();             // empty where there are none
  double consensus_distance() const;  // mean over workers of |z_i - z|_2 / |z|_2; 0 where z is 0

 private:
  std::size_t workers() const { return compared_.size(); }
  void plan_next();
  void compare(const std::vector<const float*>& values, const float* mean, std::int64_t count);

  std::vector<Source> sources_;
  std::int64_t most_;
  std::vector<double> compared_;         // by worker: |z_i - z|^2
  double scale_ = 0;                     // |z|^2
  std::vector<std::int64_t> server_at_;  // where each server's slice begins, and the end of all
  at::Tensor z_, buffers_;
  std::int64_t done_ = 0;  // of parameters and then buffers
  std::optional<Slice> slice_;
  bool of_server_ = false;  // its last piece
};

}  // namespace grapevine
