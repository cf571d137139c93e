// OwnGradients: the gradients of one rank on their way into partial sums. A part of the partial
// role: each is in one contribution, and is committed once.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/archive.hpp"
#include "algorithms/env.hpp"
#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/role.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role.
class OwnGradients {
 public:
  // The next gradient is computed at x of `version` rounds, or is one more of local steps that
  // began there.
  void begin(Version version, const FrozenTensor& x);
  Version begun_at() const { return begun_at_; }

  // The gradient of `step`, [d], for the next contribution.
  void add(Step step, at::Tensor gradient);
  // Whether local steps have been taken towards a difference.
  bool has_steps() const { return !steps_.empty(); }
  // One more of them.
  void note_step(Step step) { steps_.push_back({step, begun_at_}); }
  // The way from the x where the steps began to `x`, for the next contribution. `full`: steps that
  // weigh 1; fewer weigh less; 0: any number weighs 1.
  void add_difference(const FrozenTensor& x, std::int64_t full, BufferPool& pool);
  // From here on `full` steps weigh 1, of the differences that wait, too. Returns by how much their
  // sum was scaled for it.
  double weigh(std::int64_t full);
  bool waiting() const { return !waiting_.empty(); }

  // The sum of what waits, and how many gradients are in it. Undefined: nothing waits, or the
  // residual has it.
  struct Contribution {
    at::Tensor sum;
    std::int64_t gradients = 0;
  };
  Contribution contribute();
  // The round of the contribution is given up: its gradients wait again. `sum`: theirs; undefined:
  // it is in the residual.
  void take_back(at::Tensor sum);
  // The contribution is in the model, after the round of `stamp`, this rank's: the events of its
  // gradients, and of the round, in `step` of this rank. `contributors`: the ranks that have
  // gradients in it.
  void commit(Env& env, const Stamp& stamp, Step step, const ModelState& model,
              std::vector<Rank> contributors);

  // All that waits, and the local steps since then, count in the model: the events of these
  // gradients, and their sum; undefined where nothing waits, or the residual has it.
  at::Tensor flush(Env& env, const Stamp& stamp, Step step, const ModelState& model);

  void fields(Archive& a, std::int64_t d);

 private:
  // Of `step`, at the x of `version` rounds.
  struct Gradient {
    Step step = 0;
    Version version = 0;
  };
  using Gradients = std::vector<Gradient>;

  at::Tensor sum(at::Tensor vector);
  void unweigh();
  void count(Env& env, const Stamp& stamp, Step step, const ModelState& model);
  static void list_fields(Archive& a, const std::string& name, Gradients& gradients);

  Version begun_at_ = 0;
  FrozenTensor start_;            // where the steps began
  Gradients steps_;               // differences: those of the steps since then
  at::Tensor sum_;                // [d] or undefined: of those that wait
  std::int64_t full_ = 0;         // steps of a difference of weight 1 in that sum; 0: of any
  std::int64_t differences_ = 0;  // in it
  std::int64_t contributed_differences_ = 0;
  Gradients waiting_, contributed_;
};

}  // namespace grapevine
