// Reduction: the sum of one vector per rank, for an aggregate. A part: all implementations have the
// same four calls.
//
//   exact       by one of three all-reduces (exact_reduction.hpp); of a vector that is given in
//               parts, too (bucketed_reduction.hpp)
//   sparse      each rank's vector through error feedback and a compressor, then a collective over
//               the lists (packed_collective.hpp); the result is a dense vector again
//   quantised   reduce-scatter and all-gather of packed slices (quantised_reduction.cpp)
//
// All ranks get the same bits. With g_i the vectors given, e_i the residuals (error_feedback.hpp),
// those of totals included:
//   sum of e_i' + result = sum of (beta e_i + g_i), beta: residual_decay, 1 by default
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/archive.hpp"
#include "algorithms/collectives/collective.hpp"
#include "algorithms/compressors/error_feedback.hpp"
#include "algorithms/compressors/settings.hpp"
#include "algorithms/parts/recycled_memory.hpp"
#include "messages/check.hpp"
#include "messages/expected.hpp"
#include "messages/gradient.hpp"
#include "messages/ids.hpp"
#include "messages/protocol.hpp"
#include "messages/random.hpp"

namespace grapevine {

// Not thread-safe. Operations ascend; messages of later ones wait.
class Reduction {
 public:
  virtual ~Reduction() = default;

  // Gives `vector`, [d] float32, contiguous, whose memory is taken. `epoch`: the training behind
  // it, the same on all ranks, for schedules. Undefined: what take_back() has returned to the
  // residual. REQUIRES: not running().
  virtual std::vector<OutgoingMessage> start(std::int64_t operation, double epoch,
                                             at::Tensor&& vector, Rng& rng) = 0;
  // Where the parts begin in which a vector may be given before it is complete; null: whole alone.
  virtual PartBegins parts() const { return nullptr; }
  // Such a part, from element `begin` on, in the order of GradientPart; start() gives what is left
  // then, and the operation is running() from there on. A part that the loaded state had counts
  // once. REQUIRES: not running(); parts() has `begin`.
  virtual std::vector<OutgoingMessage> start_part(std::int64_t /*operation*/, double /*epoch*/,
                                                  std::int64_t /*begin*/,
                                                  const at::Tensor& /*part*/, Rng&) {
    GRAPEVINE_CHECK(false, "a part was given to a sum of whole vectors");
  }
  // Of any operation from the present one on. Another payload is a broken invariant.
  virtual std::vector<OutgoingMessage> on_message(Rank from, Payload payload) = 0;

  // Started and its result not taken.
  virtual bool running() const = 0;
  virtual bool done() const = 0;
  // The messages of the running operation that come next, where they are missing. REQUIRES:
  // running().
  virtual std::vector<Awaited> awaited() const = 0;
  // [d], the sum; sole owner of its bytes. REQUIRES: done().
  virtual at::Tensor take_sum() = 0;
  // Memory of [d] that is free now, as of a sum that was taken; what is of no use is returned.
  virtual at::Tensor recycle(at::Tensor free) { return free; }

  // Gives the running operation up, if there is one, with all that has arrived of any. Returns
  // whether what this rank gave is in its residual again; else it is lost. REQUIRES: no rank has
  // the result.
  virtual bool take_back() = 0;
  // The same where another rank has the result of that operation: what this rank gave is in it, and
  // not in its residual. Of a sum that selects entries, a rank without the result does not know
  // which: all are in the residual again, and those that it has selected count twice.
  virtual void count_as_given() { static_cast<void>(take_back()); }
  // The residuals, which do not depend on the ranks. REQUIRES: !running(). Errors (bad_input):
  // damaged entries.
  virtual void kept_fields(Archive&) {}
  // Those residuals, [d], which are empty then; undefined: there are none. REQUIRES: !running().
  virtual at::Tensor take_residual() { return {}; }

  // `operation`, `epoch`: those that are running. Errors (bad_input): entries that are missing or
  // damaged.
  virtual void fields(Archive& a, std::int64_t operation, double epoch) = 0;
};

// The exact sum among `ranks`; ranks[position] is this rank. A state has vectors of d alone, or of
// any length where d < 0. Operations need not ascend, but each has a number of its own. `memory`:
// of the sums that are sent, for several reductions or for this one.
std::unique_ptr<Reduction> make_exact_reduction(std::vector<Rank> ranks, std::int32_t position,
                                                std::int64_t d = -1,
                                                ExactReduce algorithm = ExactReduce::ring,
                                                RecycledMemory memory = {});

struct ReductionSettings {
  CompressionSettings compression;
  // The optimizer's, for the momentum correction.
  double momentum = 0;
  bool nesterov = false;
  // Exact sums: in buckets of this size; 0: all in one.
  std::int64_t bucket_bytes = 0;
  // Exact sums, all in one: of what is sent.
  RecycledMemory memory = {};
};

// Among `ranks`; ranks[position] is this rank. For vectors of d on `device`. With a compressor that
// works in the host's memory, and where entries are selected from sums on the way, the reduction
// works there: the vector is copied down at its start, the sum up at its end.
std::unique_ptr<Reduction> make_reduction(const ReductionSettings& settings,
                                          std::vector<Rank> ranks, std::int32_t position,
                                          std::int64_t d, at::Device device = at::kCPU);
std::unique_ptr<Reduction> make_quantised_reduction(const ReductionSettings& settings,
                                                    std::vector<Rank> ranks, std::int32_t position,
                                                    std::int64_t d, at::Device device);
// Whether the reduction works where its vectors are.
bool reduces_on_any_device(const CompressionSettings& settings);

// Of the residual of each rank.
ErrorFeedbackSettings feedback_of(const ReductionSettings& settings);

}  // namespace grapevine
