// Compressors: they make exchanged vectors smaller. A part; independent of roles and other parts.
//
// A compressor is a constant: it has no state. Randomness comes from the caller's rng, which the
// Peer checkpoints. ErrorFeedback (error_feedback.hpp) keeps the values that compression leaves
// over; in gossip they are the difference to the replicas of the peers.
//
// x: [d] float32, contiguous, d < 2^32. A compressor of any_device() works where x is, and what it
// packs is there. All others work in the host's memory; make_compressor()'s copy a vector on
// another device down, and back where they change it, in this thread's current stream of that
// device. Any rank can fold a vector that another packed, wherever that is; folding gives the same
// bits everywhere, but for 16 bits times a factor that is no power of two. A NaN or infinity never
// folds to a finite vector.
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

  // The expectation of the folded vector, over the rng, is the packed one.
  virtual bool unbiased() const = 0;
  // Whether it works where x is; `packed` of its fold() is there as well.
  virtual bool any_device() const { return false; }
  // Whether it sends single entries by index; the other compressors send all entries.
  virtual bool sparse() const { return false; }
  // Payload bytes of a vector of d at `epoch`; the most, where it depends on the values.
  virtual std::uint64_t bytes(std::int64_t d, double epoch) const = 0;

  virtual Packed pack(const at::Tensor& x, double epoch, Rng& rng) const = 0;
  // x += factor * packed. Errors (protocol): pack() makes no such message of a vector of this size;
  // x is then as before.
  virtual Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const = 0;
  // Whether fold() would take it for a vector of d. Takes memory of d.
  Expected<void> check(const Packed& packed, std::int64_t d) const;
};

// Sources: top-k: Aji & Heafield 2017; random-k: Stich et al. 2018 (scaled by d/k, which makes it
// unbiased, where there is no error feedback); int8: QSGD, Alistarh et al. 2017, with a scale per
// block; sign: Bernstein et al. 2018 with the scale of Karimireddy et al. 2019, per block.
// REQUIRES: settings.name is one of compressor_names().
std::unique_ptr<const Compressor> make_compressor(const CompressionSettings& settings);

// Whether entries that are not sent count as 0 at the receiver.
bool is_sparse(const CompressionSettings& settings);
// Compressor::any_device() of make_compressor()'s.
bool works_on_any_device(const CompressionSettings& settings);
// Whether at least 8 bits of each number are sent.
bool keeps_magnitudes(const CompressionSettings& settings);

// `none` first.
std::vector<std::string> compressor_names();

// That of the compressor's type, in (0, 1]. REQUIRES: as make_compressor().
double default_consensus_step(const CompressionSettings& settings);

}  // namespace grapevine
