// Compressors: what makes an exchanged vector smaller. A part; knows no role and no other part.
//
// A compressor is a constant: it has no state. Chance comes from the caller's rng, which the Peer
// checkpoints; what compression leaves over is kept by ErrorFeedback (error_feedback.hpp), or, in
// gossip, is the difference to the copies that the peers have.
//
// x: [d] float32, contiguous, on the CPU, d < 2^32. What one rank packs another can fold; folding
// gives the same bits everywhere. A vector with a NaN or infinity never folds to a finite one.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/compressors/settings.hpp"
#include "messages/expected.hpp"
#include "messages/protocol.hpp"
#include "messages/random.hpp"

namespace grapevine {

// Thread-safe.
class Compressor {
 public:
  virtual ~Compressor() = default;

  // The expectation of what is folded, over the rng, is what was packed.
  virtual bool unbiased() const = 0;
  // Whether it names single entries by index; others send something for each.
  virtual bool sparse() const { return false; }
  // Payload bytes of a vector of d at `epoch`; the most, where it depends on the values.
  virtual std::uint64_t bytes(std::int64_t d, double epoch) const = 0;

  virtual Packed pack(const at::Tensor& x, double epoch, Rng& rng) const = 0;
  // x += factor * packed. Errors (protocol): not what pack() makes of a vector of this size; x is
  // then as before.
  virtual Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const = 0;
  // Whether fold() would take it for a vector of d. Takes memory of d.
  Expected<void> check(const Packed& packed, std::int64_t d) const;
};

// Sources: top-k: Aji & Heafield 2017; random-k: Stich et al. 2018 (scaled by d/k, which makes it
// unbiased, where there is no error feedback); int8: QSGD, Alistarh et al. 2017, with a scale per
// block; sign: Bernstein et al. 2018 with the scale of Karimireddy et al. 2019, per block.
// REQUIRES: settings.name is one of compressor_names().
std::unique_ptr<const Compressor> make_compressor(const CompressionSettings& settings);

// `none` first.
const std::vector<std::string>& compressor_names();

// The consensus step of compressed gossip, where the wiring does not say: 1 for the compressors
// that keep nearly all, 1/2 for sign, twice the density (at most 1) for top-k, the density for
// random-k. Top-k at 0.1 and 0.01 of the entries on a ring of 8 is stable up to about 0.3 and 0.05.
double default_consensus_step(const CompressionSettings& settings);

// One maker per file; see their heads.
std::unique_ptr<const Compressor> make_top_k(const CompressionSettings& settings);
std::unique_ptr<const Compressor> make_random_k(const CompressionSettings& settings);
std::unique_ptr<const Compressor> make_half(at::ScalarType dtype);
std::unique_ptr<const Compressor> make_int8();
std::unique_ptr<const Compressor> make_sign();

}  // namespace grapevine
