// Roles that keep their promises pass; a role that breaks one is found out, in a sentence.
#include "algorithms/lockstep/conformance.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "algorithms/archive.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace conformance_test {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

enum class Fault {
  none,
  drops_a_gradient,
  commits_twice,
  commits_another,
  forgets_state,
  refuses_state,
  never_finishes,
  never_ends,
  stands_still,
  draws_unseeded,
  breaks_an_invariant,
  sends_to_nobody,
  steps_twice_as_far
};

// Each rank trains alone: the mean of the ranks' optima is the optimum of all. With a fault.
class Lone final : public Role {
 public:
  Lone(RoleContext c, Fault fault) : c_(std::move(c)), fault_(fault) {}

  void on_start(Env& env) override {
    if (c_.model.step < c_.parts->horizon.steps || fault_ == Fault::never_ends)
      return env.compute(c_.model.step, c_.model.x);
    if (fault_ != Fault::never_finishes) env.finished();
  }
  void on_gradient(Env& env, Gradient gradient) override {
    GRAPEVINE_CHECK(fault_ != Fault::breaks_an_invariant || c_.model.step < 3, "the fourth step");
    if (fault_ == Fault::sends_to_nobody) env.send(c_.ranks, {}, Leave());
    step_along(std::move(gradient.value).thaw());
    const bool third = c_.model.step == 3;
    Event committed{EventKind::committed, c_.rank, {}, c_.model.step, 0, 0};
    committed.stamp.step = c_.model.step;
    if (!third || fault_ != Fault::drops_a_gradient) env.record(committed);
    if (third && fault_ == Fault::commits_twice) env.record(committed);
    committed.stamp.step += 1000;
    if (third && fault_ == Fault::commits_another) env.record(committed);
    if (fault_ != Fault::never_ends) ++c_.model.step;
    on_start(env);
  }
  void on_message(Env&, Envelope) override {}
  FrozenTensor debiased() const override { return c_.model.x; }
  void fields(Archive& a) override {
    if (fault_ == Fault::refuses_state) a.fail(bad_input("entry 'optimizer' is missing"));
    if (fault_ == Fault::forgets_state) return;
    a.part("optimizer", *c_.optimizer, c_.model.x.numel());
  }

 private:
  void step_along(at::Tensor g) {
    static double unseeded = 0;
    if (fault_ == Fault::stands_still) return;
    if (fault_ == Fault::draws_unseeded) g += (unseeded += 1e-4);
    at::Tensor x = std::move(c_.model.x).thaw();
    c_.optimizer->step(x, g, fault_ == Fault::steps_twice_as_far ? 0.2 : 0.1);
    c_.model.x = FrozenTensor::freeze(std::move(x));
  }

  RoleContext c_;
  const Fault fault_;
};

// The wiring of the role with that fault.
Wiring lone(Fault fault) {
  static std::map<Fault, RoleType> types;
  const auto [entry, is_new] = types.try_emplace(fault);
  RoleType& type = entry->second;
  if (is_new) {
    type.name = "lone-" + std::to_string(static_cast<int>(fault));
    type.read = [](KeyReader&, Plan&) {};
    type.make = [fault](RoleContext c) { return std::make_unique<Lone>(std::move(c), fault); };
    EXPECT_TRUE(register_role(type).ok());
  }
  Wiring wiring;
  EXPECT_TRUE(wiring.set("exchange", type.name).ok());
  return wiring;
}

TEST(Conformance, ARoleThatKeepsItsPromisesHasNoViolations) {
  ConformanceOptions claims;
  claims.any_order = claims.one_rank_is_sgd = true;
  EXPECT_THAT(check_conformance(lone(Fault::none), claims), IsEmpty());
  EXPECT_THAT(check_conformance(find_preset("ar")->wiring, claims), IsEmpty());
}

TEST(Conformance, EveryPresetKeepsItsPromises) {
  for (const Preset& preset : presets()) {
    sim::Keys keys = sim::keys_of(preset.name);
    Wiring wiring;
    for (auto& [key, value] : keys) {
      if (key == "density") value = "0.5";
      if (key == "local_steps") value = "4";
      ASSERT_TRUE(wiring.set(key, value).ok());
    }
    if (preset.name == "diloco") {
      ASSERT_TRUE(wiring.set("outer_momentum", "0.5").ok());  // the run is short
    }
    EXPECT_THAT(check_conformance(wiring), IsEmpty()) << preset.name;
  }
}

TEST(Conformance, EveryFaultIsFound) {
  const std::map<Fault, std::string> sentences = {
      {Fault::drops_a_gradient,
       "3 ranks, 13 parameters: the gradient of rank 0, step 3 is committed or dropped 0 times "
       "instead of once"},
      {Fault::commits_twice, "rank 0, step 3 is committed or dropped 2 times instead of once"},
      {Fault::commits_another, "step 1003 is committed or dropped and was never computed"},
      {Fault::forgets_state, "saved and loaded on the way, it ends with other bits than without"},
      {Fault::refuses_state,
       "a role refuses the state that it saved: entry 'optimizer' is missing"},
      {Fault::never_finishes,
       "rank 1 waits for ever: it has taken 40 of 40 steps and not finished"},
      {Fault::never_ends, "the run does not end: "},
      {Fault::stands_still, "the mean model ends at 0, no nearer to the optimum 1.5"},
      {Fault::draws_unseeded, "the same order of arrival gives other bits when it is repeated"},
      {Fault::breaks_an_invariant, "broken invariant: "},
      {Fault::sends_to_nobody, "rank 0 sends to 1"}};
  for (const auto& [fault, sentence] : sentences)
    EXPECT_THAT(check_conformance(lone(fault)), Contains(HasSubstr(sentence)));
}

TEST(Conformance, AFalseClaimIsFound) {
  ConformanceOptions sgd;
  sgd.one_rank_is_sgd = true;
  EXPECT_THAT(check_conformance(lone(Fault::steps_twice_as_far)), IsEmpty());
  EXPECT_THAT(check_conformance(lone(Fault::steps_twice_as_far), sgd),
              Contains(HasSubstr("from SGD at step 1")));
  ConformanceOptions order;
  order.any_order = true;
  order.ranks = {4};
  EXPECT_THAT(check_conformance(find_preset("ad-psgd")->wiring, order),
              Contains(HasSubstr("two orders of arrival give different bits")));
}

TEST(Conformance, LeavesOutNumbersOfRanksThatTheWiringRefuses) {
  Wiring pairs = find_preset("ad-psgd")->wiring;
  ASSERT_TRUE(pairs.set("topology", "hypercube").ok());  // powers of two fit
  EXPECT_THAT(check_conformance(pairs), IsEmpty());
  ConformanceOptions odd;
  odd.ranks = {3, 5};
  EXPECT_THAT(check_conformance(pairs, odd),
              testing::ElementsAre(HasSubstr("no number of ranks fits: ")));
  Wiring none;
  ASSERT_TRUE(none.set("exchange", "gossip").ok());
  ASSERT_TRUE(none.set("quorum", "2").ok());
  EXPECT_THAT(check_conformance(none), testing::ElementsAre(HasSubstr("does not fit exchange")));
}

}  // namespace conformance_test
}  // namespace grapevine
