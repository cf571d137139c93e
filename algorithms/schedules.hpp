// Schedules: values that change with training time. Parts; pure functions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithms/horizon.hpp"
#include "algorithms/keys.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Learning rate. Spec grammar (--lr-schedule):
//   constant
//   step:GAMMA@T1,T2,…   multiply by GAMMA at each moment
//   cosine[:FLOOR]       half a cosine from lr to FLOOR*lr (default 0) over the whole run
//   polynomial[:POWER[,END]]      from lr to END*lr (0), by (1 - progress)^POWER (1, linear),
//                                 over the whole run
//   exponential:GAMMA[@PERIOD]    multiply by GAMMA in each PERIOD (1 epoch), evenly
//   one-cycle[:UP[,DIV[,FINAL]]]  half a cosine from lr/DIV (25) to lr in the part UP (0.3) of
//                                 the run, then half a cosine to lr/DIV/FINAL (10,000): Smith &
//                                 Topin 2019, as torch.optim.lr_scheduler.OneCycleLR has it
// A moment or PERIOD is a number of epochs, fractions included, or of steps: 500s.
// With `per_256` the base rate is lr * global_batch / 256, else it is lr. Warm-up is linear over
// `warmup_epochs` up to the base rate: with `per_256` from lr (Goyal et al. 2017, section 2.2: the
// rate of one worker; from the base where that is smaller), else from `warmup_from` times the base.
// Decay multiplies warm-up.
struct LrConfig {
  double lr = 0.1;  // > 0 or == 0; negative is refused
  std::string spec = "constant";
  double warmup_epochs = 0;
  double warmup_steps = 0;  // above 0: in the place of warmup_epochs
  double warmup_from = 0;   // [0, 1]; 0 with per_256: see above
  bool per_256 = false;
  std::int64_t global_batch = 256;  // samples per step of all ranks together
  double epochs = 1;                // length of the run, for cosine
  // Where known, a step of the warm-up takes the rate of its end, so that the first one moves.
  double steps_per_epoch = 0;
};

class LrSchedule {
 public:
  // Errors (bad_input) quote the spec or the number that is out of range.
  static Expected<LrSchedule> make(const LrConfig& config);
  // As far as the length of an epoch does not matter: milestones ascend among those in epochs, and
  // among those in steps. steps_per_epoch is not used. Errors: those of make().
  static Expected<void> check(LrConfig config);
  // Rate for an update at `epoch` (fractional, >= 0).
  double at(double epoch) const;
  // The same for members that take over at horizon.first_step, with epochs of another number of
  // steps: what is given in steps, moments, a PERIOD, the warm-up and the length of a run of so
  // many steps, has other epochs then.
  LrSchedule among(const Horizon& horizon) const;
  double base() const { return base_; }
  bool warms_up_at(double epoch) const { return epoch < warmup_epochs_; }
  // Whether the rate at an epoch depends on the length of the run.
  bool follows_the_end() const {
    return kind_ == Kind::cosine || kind_ == Kind::polynomial || kind_ == Kind::one_cycle;
  }

 private:
  // Which milestones have to ascend.
  enum class Order { of_all, of_each_unit };

  LrSchedule() = default;
  static Expected<LrSchedule> make(const LrConfig& config, Order milestones);
  Expected<void> parse_spec(const std::string& spec, Order milestones);
  Expected<void> parse_step(const std::string& spec, const std::string& argument, Order order);
  Expected<void> parse_numbers(const std::string& spec, const std::string& argument);
  Expected<void> parse_exponential(const std::string& spec, const std::string& argument);
  struct Moment {
    double number = 0;
    bool in_steps = false;
  };
  // How much of something lies behind an epoch. What is given in steps has another length in epochs
  // from an epoch on, at which a part is done.
  struct Progress {
    double length = 1;  // epochs
    double from = 0;
    double done = 0;

    double at(double epoch) const { return done + (epoch - from) / length; }
    static Progress of_steps(double steps, const Horizon& horizon) {
      return {steps / horizon.steps_per_epoch, horizon.first_epoch,
              static_cast<double>(horizon.first_step) / steps};
    }
  };
  std::optional<Moment> parse_moment(std::string_view text) const;
  double epochs_of(const Moment& moment) const;
  double decay_at(double epoch) const;
  enum class Kind { constant, step, cosine, polynomial, exponential, one_cycle };
  Kind kind_ = Kind::constant;
  double base_ = 0;
  double warmup_from_ = 0;
  double warmup_epochs_ = 0;  // its end
  double warmup_steps_ = 0;   // 0: given in epochs
  Progress warmup_;
  double step_epochs_ = 0;  // of one step
  Progress run_;
  Progress period_;                 // exponential: in periods
  double gamma_ = 1;                // step, exponential: factor; cosine: floor
  std::vector<double> milestones_;  // step: in epochs,
  std::vector<Moment> moments_;     // and as given; exponential: the period
  std::vector<double> numbers_;     // polynomial, one-cycle: the arguments, with their defaults
};

// A whole number from 1 to 2^31 - 1 that changes at epochs: "2" or "0:1,30:2" (from epoch 0 one,
// from epoch 30 two). Epochs may be fractional.
class CountSchedule {
 public:
  static CountSchedule constant(std::int64_t count);
  // Counts of at least `least`. Errors (bad_input): not the grammar, a count out of range, epochs
  // that do not ascend from 0.
  static Expected<CountSchedule> parse(const std::string& text, std::int64_t least = 1);
  // REQUIRES: epoch >= 0; made by parse().
  std::int64_t at(double epoch) const;
  // All counts that it ever takes, in their order.
  std::vector<std::int64_t> values() const;
  // The largest of them.
  std::int64_t most() const;
  // The text that parse() reads as the same schedule.
  std::string to_string() const;

 private:
  std::vector<std::pair<double, std::int64_t>> entries_;  // ascending, first at epoch 0
};

// A key of a wiring with counts of at least `least`, by epoch.
CountSchedule read_counts(KeyReader& keys, const std::string& key, const std::string& fallback,
                          std::int64_t least, const std::string& explanation);

// The share of a vector's entries that a sparsifier keeps, in (0, 1]. It may begin higher: the
// entries of the warm-up hold for an equal number of epochs each, and never fall below `density`.
// Warm-up grammar (wiring.density_warmup):
//   none
//   D1,D2,…[@EPOCHS]   each for EPOCHS epochs (default 1, may be fractional)
//   dgc[@EPOCHS]       0.25,0.0625,0.015625,0.004 (Lin et al. 2018, section 3.3)
class DensitySchedule {
 public:
  // Errors (bad_input) name wiring.density or wiring.density_warmup and quote the text.
  static Expected<DensitySchedule> parse(const std::string& density, const std::string& warmup);
  double at(double epoch) const;
  // Once the warm-up is over.
  double base() const { return density_; }
  // How many of d entries are kept: max(floor(density * d), 1), at most d.
  std::int64_t entries(double epoch, std::int64_t d) const;

 private:
  double density_ = 1;
  std::vector<double> warmup_;
  double epochs_each_ = 1;
};

}  // namespace grapevine
