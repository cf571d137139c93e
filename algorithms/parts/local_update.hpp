// LocalUpdate: the steps of a rank between two exchanges, and the vector that it packs. A part.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/archive.hpp"
#include "algorithms/exchange_steps.hpp"
#include "algorithms/keys.hpp"
#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/parts/optimizer.hpp"
#include "algorithms/role.hpp"
#include "algorithms/schedules.hpp"

namespace grapevine {

// What ranks exchange.
enum class Pack { gradient, model, difference };

const char* pack_name(Pack pack);

// Gradient clipping by the L2 norm c (Pascanu et al. 2013).
struct ClipSettings {
  enum class At {
    own,       // each rank's own gradient to c
    own_part,  // each rank's own to c / sqrt(P): of sums (Lin et al. 2018, section 3.1)
    mean       // the mean of all ranks to c
  };
  double norm = 0;  // c; 0: none
  At at = At::own;

  bool clips_mean() const { return norm > 0 && at == At::mean; }
};

// The optimizer that steps along mean differences D with momentum mu and rate nu.
enum class Outer {
  none,      // a <- a - D
  nesterov,  // u <- mu u + D;  a <- a - nu (D + mu u)  (DiLoCo: Douillard et al. 2023)
  momentum,  // u <- mu u + D;  a <- a - nu u  (heavy ball)
  slowmo     // u <- mu u + D / gamma;  a <- a - nu gamma u  (Wang et al. 2020, equation 2)
};

struct LocalUpdateSettings {
  Pack pack = Pack::gradient;
  LocalSteps steps;           // of each rank from one exchange to the next
  Outer outer = Outer::none;  // of differences
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  std::string outer_schedule = "constant";  // of outer_lr, as of the learning rate
  // Quasi-global momentum (Lin et al. 2021): of what a rank's model does, exchanges included, not
  // of its own gradients. The part of each new one in its mean, mu; 0: the optimizer's momentum.
  double quasi_global = 0;
  ClipSettings clip;
};

// `packs`: what the role can exchange, the usual one first; `why`: completes "does not fit …".
Pack read_pack(KeyReader& keys, const std::vector<Pack>& packs, const std::string& why);
LocalSteps read_local_steps(KeyReader& keys);
// The optimizer that steps along mean differences.
void read_outer(KeyReader& keys, LocalUpdateSettings& local);
// For roles that mix models: the pack and the outer optimizer. Without one a difference is the
// model itself, and no anchor is kept.
void read_mixed(KeyReader& keys, LocalUpdateSettings& local, const std::string& why);
void read_quasi_global(KeyReader& keys, LocalUpdateSettings& local);
// The rate of the outer optimizer over the run; as LrSchedule::among() where members have changed.
// REQUIRES: read from keys.
LrSchedule outer_rate(const LocalUpdateSettings& local, const Horizon& horizon);
// Its rate and momentum, with their defaults.
void read_outer_rates(KeyReader& keys, LocalUpdateSettings& local, double rate, double momentum);
// `sums`: the role adds gradients up, so that their mean can be clipped.
ClipSettings read_clip(KeyReader& keys, bool sums);

// What gossip does in the pass of a step.
struct StepRound {
  FrozenTensor share = {};  // x <- x + share before it; w has the share's. Undefined: none
  double kept = 1;          // x and w are scaled by it after the step
  bool debiases = false;    // z <- x/w in the end
  FrozenTensor z = {};      // the result; undefined where nothing is de-biased
};

// LocalUpdate: the use of gradients on one rank: steps between two exchanges, what they amount to,
// and the step along the mean that an exchange gives. Not thread-safe: belongs to one role.
//
// Symbols: x the model, g a gradient, u the optimizer's direction, gamma the learning rate, a the
// anchor (x after the last exchange), D a mean difference.
//   gradient    packs g;                            x <- x - gamma u(mean)
//   model       x <- x - gamma u(g);  packs x;      x <- mean
//   difference  x <- x - gamma u(g);  packs a - x;  a <- outer step along D;  x <- a
//               where roles mix models: mixes x, D = a - x;  a <- outer step along D;  x <- a
//               (SlowMo over gossip: Wang et al. 2020; over pairs: NoLoCo, Kolehmainen et al.
//               2025, equation 2 with gamma = beta, as released)
// The inner optimizer's state stays on its rank: it is neither averaged nor reset. SlowMo's paper
// keeps gamma constant between two exchanges; here it is that of the last local step.
class LocalUpdate {
 public:
  // `ranks`: whose gradients are added up. All references outlive this. `momentum`, `nesterov`: of
  // the quasi-global momentum; `optimizer` has none then.
  LocalUpdate(const LocalUpdateSettings& settings, const ExchangeSteps& exchanges,
              const Horizon& horizon, const LrSchedule& lr, std::int32_t ranks,
              std::unique_ptr<Optimizer> optimizer, double momentum = 0, bool nesterov = false);

  // Whether an exchange follows `steps` steps.
  bool exchange_due(Step steps) const { return exchanges_.due(steps); }

  // x <- x - gamma u(g), with g clipped, at `epoch` of training. Sets model.lr, leaves model.step.
  // Returns the memory of g.
  at::Tensor step(ModelState& model, at::Tensor g, double epoch, BufferPool& pool);
  // x <- (x + share - gamma u(g)) * kept, w <- w * kept, z <- x/w: `round`. REQUIRES: no share
  // where momentum is quasi-global.
  at::Tensor step(ModelState& model, at::Tensor g, double epoch, BufferPool& pool,
                  StepRound& round);
  // The same along the mean of all ranks' gradients, clipped where the mean is.
  at::Tensor step_along_mean(ModelState& model, at::Tensor mean, double epoch, BufferPool& pool);
  // Along a rank's part of a mean of gradients, which come late: Optimizer::step_late(). Clipped as
  // the mean would be: that of clipped parts is no longer.
  void step_along_late(ModelState& model, at::Tensor part, double epoch);
  // g clipped to what one rank may add to a sum.
  void clip_own(at::Tensor& g) const;

  // Pack::model, Pack::difference: what the steps since the last exchange amount to, [d].
  at::Tensor packed(const ModelState& model, BufferPool& pool) const;
  // x, after an exchange whose mean was `mean`, [d]: the same on ranks that had the same x or a.
  // Returns memory that is free now, or nothing.
  at::Tensor take_mean(ModelState& model, at::Tensor mean, double epoch, BufferPool& pool);
  // After an exchange that has mixed models, `steps` steps after the one before it:
  // m <- (1 - mu) m + mu (x/w after that one - x/w) / (gamma steps), quasi-global momentum. gamma
  // is the rate at `epoch`, of the last of them.
  void learn_from_mixed(const ModelState& model, std::int64_t steps, double epoch,
                        BufferPool& pool);
  // Where an exchange has mixed models, x/w is this rank's and D the way from the anchor to it:
  // a <- outer step along a - x/w;  x <- w a. Without an outer optimizer x stays.
  void step_to_mixed(ModelState& model, double epoch, BufferPool& pool);
  // Pack::difference: x <- a, the anchor.
  void return_to_anchor(ModelState& model, BufferPool& pool) const;
  const FrozenTensor& anchor() const { return anchor_; }
  // The anchor of the first steps. REQUIRES: w == 1.
  void begin(const ModelState& model);
  // The next steps begin at x as after an exchange: a <- x. REQUIRES: w == 1.
  void restart(const ModelState& model);

  // Of the optimizer alone: see Optimizer::state_vector().
  at::Tensor optimizer_state(std::int64_t d) const { return optimizer_->state_vector(d); }
  void set_optimizer_state(const at::Tensor& state, std::int64_t d) {
    optimizer_->set_state_vector(state, d);
  }

  // For models of d; `begun`: local steps were taken, so that there is an anchor where differences
  // are packed.
  void fields(Archive& a, std::int64_t d, bool begun);

 private:
  void outer_step(at::Tensor& out, const at::Tensor& x, at::Tensor& mean, double epoch);
  void add_quasi_global(const ModelState& model, at::Tensor& g);
  void update(ModelState& model, at::Tensor& g, double epoch, BufferPool& pool, StepRound& round);

  const LocalUpdateSettings& settings_;
  const ExchangeSteps& exchanges_;
  const LrSchedule& lr_;
  const LrSchedule outer_lr_;
  const std::int32_t ranks_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Optimizer> outer_;  // null: the plain difference
  FrozenTensor anchor_;               // differences; undefined before the first step
  const double momentum_;             // of the quasi-global one
  const bool nesterov_;
  FrozenTensor before_;      // x/w after the last exchange
  at::Tensor quasi_global_;  // m: [d], in units of gradients; undefined at first
};

}  // namespace grapevine
