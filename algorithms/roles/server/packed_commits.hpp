// PackedCommits: the commits of a client to one parameter server, compressed, with error feedback.
//
// Error feedback as for workers that send to a server: Seide et al. 2014; Karimireddy et al. 2019.
//   e <- e + u;  commit C(e);  e <- e - C(e);  a commit that is refused:  e <- e + C(e)
// So the sum of accepted commits, of those on their way, and e is the sum of all u; exactly where
// no sum is rounded. Without error feedback it commits C(u) and keeps nothing.
//
// Not thread-safe: belongs to one role. Memory: d floats, and the commits without an answer.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>

#include "algorithms/archive.hpp"
#include "algorithms/compressors/compressor.hpp"
#include "algorithms/compressors/error_feedback.hpp"

namespace grapevine {

class PackedCommits {
 public:
  // For vectors of d, the server's slice.
  PackedCommits(const CompressionSettings& settings, std::int64_t d);

  // The message that commits `update`, [d] float32, contiguous; its values are unspecified
  // afterwards. A PackedChunk whose operation is the exchange, and whose round the number of
  // gradients in it.
  PackedChunk commit(std::int64_t exchange, std::int64_t gradients, Rank client, at::Tensor& update,
                     double epoch, Rng& rng);
  // The server's answer. REQUIRES: commit() of that exchange, once.
  void on_receipt(std::int64_t exchange, bool accepted);
  // Whether a refused commit is sent again later.
  bool keeps_refused() const { return error_feedback_; }

  // What no commit has had yet, [d]; undefined: nothing.
  const at::Tensor& residual() const { return feedback_.residual(); }

  // Errors (bad_input): damaged entries.
  void fields(Archive& a);

 private:
  // Constant after construction.
  const std::int64_t d_;
  const bool error_feedback_;
  const std::unique_ptr<const Compressor> compressor_;

  ErrorFeedback feedback_;
  std::map<std::int64_t, Packed> sent_;  // by exchange: not answered yet
};

}  // namespace grapevine
