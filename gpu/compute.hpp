// Compute: the pure function (parameters, batch) -> (gradient, loss) behind a GpuWorker.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "messages/expected.hpp"
#include "messages/gradient.hpp"

namespace grapevine {

struct Evaluation {
  double loss = 0;
  double top1 = 0;  // NaN for regression
  double top5 = 0;  // NaN for regression or fewer than 5 classes
  std::int64_t samples = 0;
};

// Takes parts of a gradient, in the order of GradientPart.
using GivePart = std::function<void(GradientPart)>;

// Not thread-safe; a worker owns its Compute, which owns the module, the shard and the device.
class Compute {
 public:
  virtual ~Compute() = default;

  virtual std::int64_t dimension() const = 0;           // d: number of parameters
  virtual FrozenTensor initial_parameters() const = 0;  // [d]
  virtual FrozenTensor initial_buffers() const = 0;     // [b]; empty where there are none

  // Deterministic: equal requests give bit-identical results (CPU, one thread). Never throws:
  // failures are in Gradient::error. Drops request.z before it returns.
  virtual Gradient gradient(GradientRequest request) = 0;

  // The same gradient. Parts of it, as request.parts has them, may be given as soon as they are
  // complete, on this thread; the rest is returned. A failure may follow parts. Where a part is not
  // known before the whole, all is returned.
  virtual Gradient gradient_in_parts(GradientRequest request, const GivePart& /*give*/) {
    return gradient(std::move(request));
  }

  // Loss and accuracy on the test split at `z`, `buffers`.
  virtual Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) = 0;

  // Whether gradient() waits for its batch at the moment. Any thread.
  virtual bool reads() const { return reads_.load(std::memory_order_relaxed); }

  // Called, on its thread, each time evaluate() has got on by a batch: a long evaluation is not a
  // stuck one. Where it returns false, the evaluation ends with an error.
  void on_evaluation_progress(std::function<bool()> call) { progress_ = std::move(call); }

 protected:
  void set_reads(bool reads) { reads_.store(reads, std::memory_order_relaxed); }
  // Whether the next batch is to be evaluated.
  bool evaluation_goes_on() const { return !progress_ || progress_(); }

 private:
  std::function<bool()> progress_;
  std::atomic<bool> reads_{false};
};

}  // namespace grapevine
