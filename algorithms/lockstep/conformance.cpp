#include "algorithms/lockstep/conformance.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "algorithms/lockstep/lockstep.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/random.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

// One event in so many is followed by a save and load.
constexpr std::uint64_t kEventsPerSave = 23;

using Parts = std::shared_ptr<const SharedParts>;

at::Tensor target_of(Rank rank, std::int64_t d) { return at::full({d}, rank + 1.0, at::kFloat); }

std::string name_of_case(std::int32_t ranks, std::int64_t d) {
  return std::to_string(ranks) + (ranks == 1 ? " rank, " : " ranks, ") + std::to_string(d) +
         " parameters";
}

// The end of one run.
struct Ending {
  std::vector<at::Tensor> models;  // z of each rank that trains, [d]
  std::vector<at::Tensor> path;    // z at each gradient of rank 0, [d]
  std::vector<std::string> violations;
};

bool same_bits(const Ending& one, const Ending& other) {
  if (one.models.size() != other.models.size()) return false;
  for (std::size_t i = 0; i < one.models.size(); ++i)
    if (!at::equal(one.models[i], other.models[i])) return false;
  return true;
}

// A run of one order of arrival.
class Trial {
 public:
  Trial(const Parts& parts, std::int32_t ranks, std::int64_t d)
      : parts_(parts), ranks_(ranks), d_(d) {}

  // `saves`: roles are saved and loaded at random events.
  Ending run(std::uint64_t order, bool saves) {
    try {
      Lockstep world(
          parts_, ranks_, [this](Rank) { return at::zeros({d_}); },
          [this](Rank rank, Step step, const at::Tensor& z) {
            answered_.insert({rank, step});
            if (rank == 0) ending_.path.push_back(z.clone());
            return z - target_of(rank, d_);
          });
      if (go(world, order, saves)) {
        check_end(world);
        check_gradients(world);
        check_optimum(world);
      }
    } catch (...) {
      fail(exception_line(std::current_exception()));
    }
    return std::move(ending_);
  }

 private:
  void fail(const std::string& sentence) { ending_.violations.push_back(sentence); }

  // False where it does not end.
  bool go(Lockstep& world, std::uint64_t order, bool saves) {
    Rng events(order), saving(mix_seed(order, 1));
    const std::int64_t most = 300 * (parts_->horizon.steps + 1) * ranks_;
    for (std::int64_t i = 0; world.step(events); ++i) {
      if (i > most) {
        fail("the run does not end: " + std::to_string(most) + " events have passed");
        return false;
      }
      if (!saves || saving() % kEventsPerSave != 0) continue;
      if (auto loaded = world.save_and_load(); !loaded) {
        fail("a role refuses the state that it saved: " + loaded.error().message);
        return false;
      }
    }
    return true;
  }

  void check_end(const Lockstep& world) {
    for (Rank rank = 0; rank < ranks_; ++rank)
      if (!world.finished(rank))
        fail("rank " + std::to_string(rank) + " waits for ever: it has taken " +
             std::to_string(world.model(rank).step) + " of " +
             std::to_string(parts_->horizon.steps) + " steps and not finished");
  }

  // The first violation alone: others of its kind follow from it.
  void check_gradients(const Lockstep& world) {
    std::map<std::pair<Rank, Step>, int> ended;
    for (Rank rank = 0; rank < ranks_; ++rank)
      for (const Event& event : world.events(rank))
        if (event.kind == EventKind::committed || event.kind == EventKind::dropped)
          ++ended[{rank, event.stamp.step}];
    for (const auto& gradient : answered_) ended.insert({gradient, 0});
    for (const auto& [gradient, times] : ended) {
      const auto& [rank, step] = gradient;
      const std::string name =
          "the gradient of rank " + std::to_string(rank) + ", step " + std::to_string(step);
      if (answered_.count(gradient) == 0)
        return fail(name + " is committed or dropped and was never computed");
      if (times != 1)
        return fail(name + " is committed or dropped " + std::to_string(times) +
                    " times instead of once");
    }
  }

  void check_optimum(const Lockstep& world) {
    double mean = 0;
    for (Rank rank = 0; rank < ranks_; ++rank) {
      ending_.models.push_back(world.role(rank).debiased().read().clone());
      mean += ending_.models.back().mean().item<double>() / ranks_;
    }
    const double optimum = (ranks_ + 1) / 2.0;
    if (std::abs(mean - optimum) < optimum / 2) return;
    std::ostringstream sentence;
    sentence << "the mean model ends at " << mean << ", no nearer to the optimum " << optimum
             << " than half of the way from 0 after " << parts_->horizon.steps
             << " steps: it goes elsewhere, or too slowly to tell";
    fail(sentence.str());
  }

  const Parts parts_;
  const std::int32_t ranks_;
  const std::int64_t d_;
  std::set<std::pair<Rank, Step>> answered_;  // gradients
  Ending ending_;
};

// The checks of one number of ranks and parameters.
class Case {
 public:
  Case(const ConformanceOptions& options, Parts parts, std::int32_t ranks, std::int64_t d)
      : options_(options), parts_(std::move(parts)), ranks_(ranks), d_(d) {}

  std::vector<std::string> violations() {
    const Ending first = trial(options_.seed, false, "");
    const Ending other = trial(options_.seed + 1, false, "");
    const Ending saved = trial(options_.seed, true, ", saved and loaded on the way");
    if (!violations_.empty()) return violations_;
    const bool any_order = same_bits(first, other);
    if (any_order && !same_bits(first, saved))
      fail("", "saved and loaded on the way, it ends with other bits than without");
    if (!any_order && !same_bits(first, trial(options_.seed, false, "")))
      fail("", "the same order of arrival gives other bits when it is repeated");
    if (!any_order && options_.any_order)
      fail("", "two orders of arrival give different bits, and the wiring claims that none do");
    if (ranks_ == 1 && options_.one_rank_is_sgd) compare_with_sgd(first.path);
    return violations_;
  }

 private:
  void fail(const std::string& how, const std::string& what) {
    violations_.push_back(name_of_case(ranks_, d_) + how + ": " + what);
  }

  // None after a violation.
  Ending trial(std::uint64_t order, bool saves, const std::string& how) {
    if (!violations_.empty()) return {};
    Ending ending = Trial(parts_, ranks_, d_).run(order, saves);
    for (const std::string& violation : ending.violations) fail(how, violation);
    return ending;
  }

  // u <- m u + g;  x <- x - gamma u, in double precision, beside the models of the gradients.
  void compare_with_sgd(const std::vector<at::Tensor>& path) {
    double x = 0, u = 0;
    for (std::size_t step = 0; step < path.size(); ++step) {
      const double error = (path[step] - x).abs().max().item<double>();
      if (error > 1e-5)
        return fail("", "one rank alone is at a distance of " + std::to_string(error) +
                            " from SGD at step " + std::to_string(step));
      u = parts_->optimizer.momentum * u + (x - 1);
      x -= options_.lr * u;
    }
  }

  const ConformanceOptions& options_;
  const Parts parts_;
  const std::int32_t ranks_;
  const std::int64_t d_;
  std::vector<std::string> violations_;
};

// Two layers.
std::vector<std::int64_t> layers_of(std::int64_t d) {
  if (d < 2) return {d};
  return {d - d / 2, d / 2};
}

Expected<Parts> make_case_parts(Plan plan, const ConformanceOptions& options, std::int32_t ranks,
                                std::int64_t d) {
  if (plan.compression.per_layer) plan.compression.layers = layers_of(d);
  OptimizerConfig optimizer;
  optimizer.momentum = plan.role->uses_momentum(plan) ? options.momentum : 0;
  LrConfig rate;
  rate.lr = options.lr;
  const auto schedule = LrSchedule::make(rate);
  if (!schedule) return schedule.error();
  Horizon horizon;
  horizon.steps = options.steps;
  horizon.steps_per_epoch = static_cast<double>(options.steps) / 4;
  return make_parts(plan, horizon, *schedule, optimizer, ranks);
}

// The violations of one number of ranks and parameters. Errors (bad_input): the wiring refuses
// them.
Expected<std::vector<std::string>> violations_of(const Plan& plan,
                                                 const ConformanceOptions& options,
                                                 std::int32_t ranks, std::int64_t d) {
  try {
    auto parts = make_case_parts(plan, options, ranks, d);
    if (!parts) return parts.error();
    return Case(options, std::move(*parts), ranks, d).violations();
  } catch (...) {  // of a check that is no refusal
    return std::vector<std::string>{name_of_case(ranks, d) + ": " +
                                    exception_line(std::current_exception())};
  }
}

}  // namespace

std::vector<std::string> check_conformance(const Wiring& wiring,
                                           const ConformanceOptions& options) {
  const auto plan = resolve(wiring);
  if (!plan) return {plan.error().message};
  std::vector<std::string> violations;
  std::optional<Error> refusal;
  bool accepted = false;
  for (const std::int32_t ranks : options.ranks)
    for (const std::int64_t d : options.dimensions) {
      auto of_case = violations_of(*plan, options, ranks, d);
      if (of_case)
        std::move(of_case->begin(), of_case->end(), std::back_inserter(violations));
      else
        refusal = of_case.error();
      accepted = accepted || of_case;
    }
  if (!accepted && refusal) violations.push_back("no number of ranks fits: " + refusal->message);
  return violations;
}

}  // namespace grapevine
