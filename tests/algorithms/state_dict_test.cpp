#include "algorithms/state_dict.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace grapevine {
namespace state_dict_test {

using testing::HasSubstr;
using testing::Not;

StateDict sample() {
  StateDict state;
  state.put("velocity", at::arange(3, at::kFloat));
  state.put("w", 0.25);
  state.put("step", std::int64_t{7});
  state.put("name", std::string("sgd"));
  return state;
}

TEST(StateDict, GivesBackEveryKindOfValue) {
  const StateDict state = sample();
  EXPECT_TRUE(state.tensor("velocity")->equal(at::arange(3, at::kFloat)));
  EXPECT_EQ(*state.number("w"), 0.25);
  EXPECT_EQ(*state.integer("step"), 7);
  EXPECT_EQ(*state.text("name"), "sgd");
}

template <class T>
void expect_bad_input(const Expected<T>& value, const std::string& name, const std::string& kind) {
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.error().code, Errc::bad_input);
  EXPECT_THAT(value.error().message, HasSubstr("'" + name + "'"));
  EXPECT_THAT(value.error().message, HasSubstr(kind));
  EXPECT_THAT(value.error().message, Not(HasSubstr("\n")));
}

TEST(StateDict, NamesTheMissingEntry) {
  const StateDict state = sample();
  expect_bad_input(state.tensor("x"), "x", "a tensor");
  expect_bad_input(state.number("y"), "y", "a number");
  expect_bad_input(state.integer("z"), "z", "an integer");
  expect_bad_input(state.text("t"), "t", "a text");
}

TEST(StateDict, NamesTheEntryOfAnotherType) {
  const StateDict state = sample();
  expect_bad_input(state.tensor("w"), "w", "is a number, expected a tensor");
  expect_bad_input(state.number("step"), "step", "is an integer, expected a number");
  expect_bad_input(state.integer("name"), "name", "is a text, expected an integer");
  expect_bad_input(state.text("velocity"), "velocity", "is a tensor, expected a text");
}

TEST(StateDict, UnderUndoesPutAll) {
  StateDict outer;
  outer.put_all("optimizer", sample());
  outer.put("optimize", 1.0);
  outer.put("optimizer2.w", 2.0);
  outer.put("optimizer", 3.0);
  const StateDict inner = outer.under("optimizer");
  ASSERT_EQ(inner.entries().size(), sample().entries().size());
  EXPECT_EQ(*inner.number("w"), 0.25);
  EXPECT_EQ(*inner.text("name"), "sgd");
  EXPECT_TRUE(inner.tensor("velocity")->equal(at::arange(3, at::kFloat)));
}

TEST(StateDict, PrefixesNest) {
  StateDict middle, outer;
  middle.put_all("b", sample());
  outer.put_all("a", middle);
  EXPECT_EQ(*outer.integer("a.b.step"), 7);
  EXPECT_EQ(*outer.under("a").under("b").integer("step"), 7);
  EXPECT_EQ(*outer.under("a.b").integer("step"), 7);
  EXPECT_TRUE(outer.under("b").entries().empty());
}

TEST(StateDict, ListsAndRangesAreChecked) {
  StateDict state = sample();
  state.put_list("list", {3, -1, std::int64_t{1} << 40});
  state.put_list("none", {});
  EXPECT_EQ(*state.list("list"), (std::vector<std::int64_t>{3, -1, std::int64_t{1} << 40}));
  EXPECT_TRUE(state.list("none")->empty());
  EXPECT_EQ(*state.integer_in("step", 7, 7), 7);
  EXPECT_EQ(state.flat_tensor("velocity", 3)->numel(), 3);
  state.put("matrix", at::zeros({2, 2}, at::kLong));
  for (const Error& error :
       {state.list("velocity").error(), state.list("matrix").error(), state.list("w").error(),
        state.list("absent").error(), state.integer_in("step", 8, 9).error(),
        state.integer_in("step", 0, 6).error(), state.integer_in("w", 0, 9).error(),
        state.flat_tensor("velocity", 4).error(), state.flat_tensor("list", 3).error()}) {
    EXPECT_EQ(error.code, Errc::bad_input);
    EXPECT_NE(error.message.find("entry '"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("resume"), std::string::npos) << error.message;
  }
}

TEST(StateDict, PutReplaces) {
  StateDict state = sample();
  state.put("w", std::string("text now"));
  EXPECT_EQ(*state.text("w"), "text now");
  EXPECT_EQ(state.entries().size(), sample().entries().size());
}

}  // namespace state_dict_test
}  // namespace grapevine
