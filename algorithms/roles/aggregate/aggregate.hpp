// Aggregate: all ranks take the mean of their results, and continue from the same model.
//
// Papers: ring all-reduce: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
//   Compressed: Top-k, gTop-k: Shi et al., IJCAI and ICDCS 2019; momentum correction, masking,
//   warm-up of the density, local clipping: Lin et al., "Deep Gradient Compression", ICLR 2018.
//   Local SGD: Stich, ICLR 2019; DiLoCo: Douillard et al. 2023, Algorithm 1.
//
//   gradient:    g = 1/P reduce(g_1 ... g_P) at the same x;  x <- x - gamma u(g)
//   model:       H times x_i <- x_i - gamma u(g_i);  x = 1/P reduce(x_1 ... x_P)
//   difference:  H such steps from the anchor a;  D = 1/P reduce(a - x_1 ... a - x_P);  a <- a - D,
//                or by the outer optimizer (Nesterov's momentum) along D;  x_i = a
//
//   overlap: the sum of an exchange is taken while the next H steps are computed, and used at the
//   next exchange, on all ranks at once:
//     gradient (H = 1), difference:  x <- x - gamma u(g of the exchange before), a <- a - D of it
//     model:  x_i <- mean of what was sent + x_i - what this rank sent
//             (CoCoD-SGD: Shen et al. 2019)
//
//   buckets: the gradient is summed in parts, each as soon as the backward pass has computed it
//     (PyTorch DDP: Li et al., VLDB 2020); the step along the mean follows the last one
//
//   reduce: the exact sum, around a ring or direct, or, compressed: e_i <- e_i + g_i; the sum, or
//   the largest entries of the sum, of all C(e_i); the rest stays in the e_i.
//
// The last steps of a run are exchanged, too, where H does not divide them.
// Bytes per rank and exchange: 2 (P-1)/P * 4 d in 2 (P-1) messages; compressed: see the
//   collective in algorithms/collectives, e.g. 8 k log2 P for gTop-k; a header for each message.
// Staleness: 0, with overlap H; values in a residual enter later, and are not counted as staleness.
// After an exchange the replicas stay bitwise identical: every sum has a fixed order. With overlap
//   of models they differ by their own last H steps until the end, which waits for everything.
// Where members change, an operation is complete on all that remain, or is done again by them: with
//   what each gave, or, without overlap, with the gradient computed again at the same x.
// Deviations: those of the collectives; clipping ignores layers.
#pragma once
#include <algorithm>
#include <memory>

#include "algorithms/collectives/reduction.hpp"
#include "algorithms/roles/training_role.hpp"

namespace grapevine {

struct AggregateSettings final : RoleData {
  bool overlap = false;           // exchange while the worker computes
  std::int64_t bucket_bytes = 0;  // of a gradient that is exchanged in parts; 0: whole
};

const RoleType& aggregate_role();

class Aggregate final : public TrainingRole {
 public:
  explicit Aggregate(RoleContext context);

  void on_start(Env& env) override;
  void on_gradient_part(Env& env, GradientPart part) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void fields(Archive& a) override;

  std::int64_t close(Env& env) override;
  void take_back(Env& env, std::int64_t operations) override;
  void count_as_done(Env& env) override;
  void own_fields(Archive& a) override;
  void joiner_fields(Archive& a) override;
  void flush(Env& env) override;
  void take_over(const at::Tensor& optimizer) override;

 private:
  void begin_step(Env& env);
  void exchange(Env& env);
  void reduce(Env& env);
  void take_result(Env& env);
  void step_done(Env& env);
  void give_again(Env& env);
  bool exchange_due(Step steps) const;
  void skip_operation(Env& env);
  void commit_up_to(Env& env, Step end);
  void flush_part(at::Tensor part);
  void subtract_from_model(const at::Tensor& vector);

  Step first_uncommitted() const { return std::max(committed_, first_own_); }

  std::vector<Awaited> awaited() const override {
    return reduction_->running() ? reduction_->awaited() : std::vector<Awaited>();
  }
  bool packs(Pack pack) const { return plan().local.pack == pack; }

  bool has_residual() const {
    return plan().compression.enabled() && plan().compression.error_feedback;
  }

  const bool overlap_;
  const std::unique_ptr<Reduction> reduction_;  // others may be one operation ahead
  at::Tensor packed_;   // to be reduced once the operation before it is over; or undefined
  FrozenTensor sent_;   // overlap: this rank's part of the running operation
  Step operation_ = 0;  // the running one: the number of its last step
  // The gradients of this rank before it have counted, or come to nothing: all operations that have
  // ended here, and more where its local steps behind a lacked one were given up.
  Step committed_ = 0;
  Step completed_ = 0;  // the results of all operations before this step are in the model
  Step first_own_ = 0;  // of the gradients of this rank: those before are of the rank it took over
  // The operation was given up when members changed, and is done again: what this rank gave to it
  // is in its residual, or in sent_, or is packed anew.
  enum class Redo : std::int64_t { no, from_residual, packed_again } redo_ = Redo::no;
};

}  // namespace grapevine
