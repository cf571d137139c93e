// Replicas: copies of models that both ends of an edge keep, and that follow the models by
// compressed differences. A part.
//
// Source: CHOCO: Koloskova, Stich, Jaggi, ICML 2019. y_ij: the replica of x_i that i and its peer j
// keep, bit for bit the same at both ends:
//   i:  q = C(x_i - y_ij);  y_ij <- y_ij + q;  sends q           j:  y_ij <- y_ij + q
// Without error feedback y_ij <- C(x_i): plain compressed models, the comparison that does not
// reach consensus.
// Replicas start at 0, as in the paper, and not at the x_0 that ranks usually share: nothing here
// checks that x_0 is shared, and an edge may appear late in a run. The first exchanges, 1/density
// of them for top-k, therefore carry the parameters themselves.
// Several vectors of d may lie one behind the other, as a model and what is mixed beside it. Each
// is compressed by itself, as BEER does (Zhao, Li, Li, Richtárik, Chi, NeurIPS 2022): their scales
// differ.
// Memory: d floats for each vector of each peer's replica, and for each of this rank's.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "algorithms/archive.hpp"
#include "algorithms/compressors/compressor.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role.
class Replicas {
 public:
  // Of `vectors` vectors of d, on `device`.
  Replicas(const CompressionSettings& settings, std::int64_t d, at::Device device,
           std::int64_t vectors = 1);

  // The difference of x, [vectors * d], to this rank's replica `key`, which takes it in, vector by
  // vector: a key for each peer, or one for all peers that get every difference.
  std::vector<Packed> differences(const at::Tensor& x, Rank key, double epoch, Rng& rng);
  // A peer's difference. REQUIRES: one of each vector, check(packed) of each.
  void take_in(Rank peer, const std::vector<Packed>& difference);

  // [vectors * d]; zeros before the first difference.
  const at::Tensor& own(Rank key) { return at(own_, key); }
  const at::Tensor& of_peer(Rank peer) { return at(peers_, peer); }

  Expected<void> check(const Packed& packed) const { return compressor_->check(packed, d_); }
  // Of all vectors.
  std::uint64_t bytes(double epoch) const {
    return static_cast<std::uint64_t>(vectors_) * compressor_->bytes(d_, epoch);
  }
  void fields(Archive& a);

 private:
  at::Tensor& at(std::map<Rank, at::Tensor>& replicas, Rank key) const;
  at::Tensor part(const at::Tensor& all, std::int64_t vector) const {
    return all.narrow(0, vector * d_, d_);
  }
  void fold(at::Tensor replica, const Packed& packed) const;

  // Constant after construction.
  const std::int64_t d_;
  const std::int64_t vectors_;
  const at::TensorOptions options_;
  const bool error_feedback_;
  const std::unique_ptr<const Compressor> compressor_;

  std::map<Rank, at::Tensor> own_;    // y_ij by key
  std::map<Rank, at::Tensor> peers_;  // y_ji by j
  at::Tensor memory_;                 // [vectors * d], of differences
};

}  // namespace grapevine
