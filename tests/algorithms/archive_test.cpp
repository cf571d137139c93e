// One list of fields saves a state and loads it: what comes back, and what is refused.
#include "algorithms/archive.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace grapevine {
namespace archive_test {

enum class Colour { red, green, blue };

struct Leaf {
  std::int64_t number = 0;
  void fields(Archive& a, std::int64_t most) { a.whole("number", number, 0, most); }
};

// A field of every kind.
struct All {
  std::int64_t step = 0;
  std::int32_t small = 0;
  Colour colour = Colour::red;
  bool flag = false;
  double weight = 0;
  std::string name;
  std::vector<std::uint32_t> indices;
  std::vector<std::int64_t> any;
  at::Tensor vector, tensor;
  FrozenTensor frozen_vector, frozen_tensor;
  Leaf part;
  std::optional<Leaf> maybe;
  std::deque<Leaf> items;
  std::vector<Leaf> counted;
  std::map<std::int32_t, Leaf> keyed;

  void fields(Archive& a) {
    const auto visit = [](Archive& inner, Leaf& leaf) { leaf.fields(inner, 99); };
    a.whole("step", step, 0, 1000);
    a.whole("small", small);
    a.one_of("colour", colour, Colour::blue);
    a.flag("flag", flag);
    a.number("weight", weight);
    a.text("name", name);
    a.list("indices", indices, 0, 50);
    a.list("any", any);
    a.vector("vector", vector, 3);
    a.vector("frozen_vector", frozen_vector, 2);
    a.needs("tensor");
    a.tensor("tensor", tensor);
    a.tensor("frozen_tensor", frozen_tensor);
    a.part("part", part, std::int64_t{99});
    if (a.present("maybe", maybe)) a.part("maybe", *maybe, std::int64_t{99});
    a.items("items", items, visit);
    a.counted("many", "one", counted, visit, 3);
    a.keyed("keys", "of.", keyed, visit);
  }
};

All filled() {
  All all;
  all.step = 7;
  all.small = std::numeric_limits<std::int32_t>::min();
  all.colour = Colour::blue;
  all.flag = true;
  all.weight = 0.1;
  all.name = "seven";
  all.indices = {3, 50, 0};
  all.any = {-5, std::numeric_limits<std::int64_t>::max()};
  all.vector = at::arange(3, at::kFloat);
  all.tensor = at::ones({2, 2}, at::kLong);
  all.frozen_vector = FrozenTensor::copy_of(at::full({2}, 4.F));
  all.frozen_tensor = FrozenTensor::copy_of(at::ones({4}, at::kByte));
  all.part.number = 11;
  all.maybe = Leaf{12};
  all.items = {Leaf{13}, Leaf{14}};
  all.counted = {Leaf{15}};
  all.keyed = {{-2, Leaf{16}}, {9, Leaf{17}}};
  return all;
}

template <class T>
bool equal_as(const StateValue& a, const StateValue& b) {
  const T *x = std::get_if<T>(&a), *y = std::get_if<T>(&b);
  return x != nullptr && y != nullptr && *x == *y;
}

bool equal(const StateValue& a, const StateValue& b) {
  const auto *x = std::get_if<at::Tensor>(&a), *y = std::get_if<at::Tensor>(&b);
  if (x != nullptr && y != nullptr)
    return x->scalar_type() == y->scalar_type() && x->sizes() == y->sizes() && x->equal(*y);
  return equal_as<double>(a, b) || equal_as<std::int64_t>(a, b) || equal_as<std::string>(a, b);
}

void expect_equal(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.entries().size(), b.entries().size());
  for (auto x = a.entries().begin(), y = b.entries().begin(); x != a.entries().end(); ++x, ++y) {
    EXPECT_EQ(x->first, y->first);
    EXPECT_TRUE(equal(x->second, y->second)) << x->first;
  }
}

StateDict without(const StateDict& state, const std::string& name) {
  StateDict rest;
  for (const auto& [key, value] : state.entries())
    if (key != name) rest.put(key, value);
  return rest;
}

std::string error_of(const StateDict& state) {
  All all;
  const Expected<void> loaded = load_state(all, state);
  if (loaded) return "";
  EXPECT_EQ(loaded.error().code, Errc::bad_input);
  return loaded.error().message;
}

TEST(Archive, LoadsWhatItSavedInEveryKindOfField) {
  const StateDict state = save_state(filled());
  All loaded;
  loaded.maybe = Leaf{1};
  loaded.items = {Leaf{1}, Leaf{2}, Leaf{3}};
  loaded.keyed[77] = Leaf{4};
  const Expected<void> result = load_state(loaded, state);
  ASSERT_TRUE(result.ok()) << result.error().message;
  expect_equal(save_state(loaded), state);
  EXPECT_EQ(loaded.keyed.at(9).number, 17);
  EXPECT_EQ(loaded.indices, filled().indices);
}

TEST(Archive, NamesOfEntries) {
  const StateDict state = save_state(filled());
  for (const char* name : {"part.number", "maybe.number", "items.count", "items.1.number", "many",
                           "one0.number", "keys", "of.-2.number"})
    EXPECT_EQ(state.entries().count(name), 1U) << name;
}

TEST(Archive, WhatMayBeAbsentIsReset) {
  All empty;
  empty.tensor = at::zeros({0});
  All loaded = filled();
  ASSERT_TRUE(load_state(loaded, save_state(empty)).ok());
  EXPECT_FALSE(loaded.vector.defined());
  EXPECT_FALSE(loaded.frozen_tensor.defined());
  EXPECT_FALSE(loaded.maybe.has_value());
  EXPECT_TRUE(loaded.items.empty());
  EXPECT_TRUE(loaded.keyed.empty());
}

TEST(Archive, SavedAndLoadedTensorsDoNotFollow) {
  All all = filled();
  const StateDict state = save_state(all);
  all.vector.zero_();
  All loaded;
  ASSERT_TRUE(load_state(loaded, state).ok());
  loaded.tensor.zero_();
  EXPECT_TRUE(state.tensor("vector")->equal(at::arange(3, at::kFloat)));
  EXPECT_TRUE(state.tensor("tensor")->equal(at::ones({2, 2}, at::kLong)));
}

TEST(Archive, NamesEveryDamage) {
  const StateDict state = save_state(filled());
  const auto list = [](std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); };
  const std::vector<std::pair<std::string, StateValue>> damages = {
      {"step", std::int64_t{-1}},
      {"step", std::int64_t{1001}},
      {"step", 1.0},
      {"small", std::int64_t{1} << 31},
      {"colour", std::int64_t{3}},
      {"flag", std::int64_t{2}},
      {"weight", std::numeric_limits<double>::quiet_NaN()},
      {"weight", std::int64_t{1}},
      {"name", std::int64_t{1}},
      {"indices", list({51})},
      {"indices", at::ones({1})},
      {"any", std::string("any")},
      {"vector", at::ones({4})},
      {"vector", at::ones({3}, at::kDouble)},
      {"frozen_vector", at::ones({1, 2})},
      {"tensor", 2.0},
      {"frozen_tensor", std::int64_t{2}},
      {"part.number", std::int64_t{100}},
      {"maybe.number", std::int64_t{100}},
      {"items.count", std::int64_t{-1}},
      {"items.0.number", std::int64_t{100}},
      {"many", std::int64_t{4}},
      {"one0.number", std::int64_t{-1}},
      {"keys", list({9, -2})},
      {"keys", list({9, 9})},
      {"keys", list({9, std::int64_t{1} << 40})},
      {"of.9.number", std::int64_t{-1}}};
  for (const auto& [name, value] : damages) {
    StateDict bad = state;
    bad.put(name, value);
    const std::string last = name.substr(name.rfind('.') + 1);
    const std::string entry = last == "number" ? last : name;
    EXPECT_NE(error_of(bad).find("'" + entry + "'"), std::string::npos)
        << name << ": " << error_of(bad);
  }
  for (const auto& [name, value] : state.entries()) {
    const bool optional = name == "vector" || name == "frozen_vector" || name == "frozen_tensor" ||
                          name == "maybe.number";
    EXPECT_EQ(error_of(without(state, name)).empty(), optional) << name;
  }
}

TEST(Archive, ACountThatIsDamagedTakesNoMemory) {
  StateDict state = save_state(filled());
  state.put("items.count", std::int64_t{1} << 31);
  EXPECT_NE(error_of(state).find("'number'"), std::string::npos);
}

TEST(Archive, KeepsTheFirstErrorAndWritesNothingPastIt) {
  StateDict state = save_state(filled());
  state.put("colour", std::int64_t{9});
  state.put("name", std::int64_t{9});
  All loaded;
  loaded.maybe = Leaf{5};
  loaded.keyed[1] = Leaf{6};
  loaded.tensor = at::full({1}, 8.F);
  const Expected<void> result = load_state(loaded, state);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("'colour'"), std::string::npos) << result.error().message;
  EXPECT_EQ(loaded.step, 7);
  loaded.step = 0;
  loaded.small = 0;
  All untouched;
  untouched.maybe = Leaf{5};
  untouched.keyed[1] = Leaf{6};
  untouched.tensor = at::full({1}, 8.F);
  expect_equal(save_state(loaded), save_state(untouched));
}

TEST(Archive, RefusesOnlyWhereItLoads) {
  StateDict state;
  Archive saver = Archive::saver(state);
  saver.require(false, "x", "is odd");
  saver.fail(bad_input("no"));
  EXPECT_TRUE(saver.ok());
  EXPECT_TRUE(saver.has("x"));
  EXPECT_FALSE(saver.has("x", false));
  Archive loader = Archive::loader(state);
  EXPECT_FALSE(loader.has("x"));
  loader.require(false, "x", "is odd");
  loader.fail(bad_input("no"));
  EXPECT_EQ(loader.result().error().message,
            "entry 'x' of the saved state is odd: the checkpoint is damaged, resume from another "
            "one");
}

// States of random form, in states.
struct Node {
  std::int64_t number = 0;
  std::vector<std::int32_t> list;
  at::Tensor tensor;
  std::vector<Node> items;
  std::map<std::int64_t, Node> keyed;

  void fields(Archive& a) {
    const auto visit = [](Archive& inner, Node& node) { node.fields(inner); };
    a.whole("number", number);
    a.list("list", list);
    a.tensor("tensor", tensor);
    a.items("items", items, visit);
    a.keyed("keyed.keys", "keyed.", keyed, visit);
  }
};

Node random_node(std::mt19937& random, int depth) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Node node;
  node.number = static_cast<std::int64_t>((std::uint64_t{random()} << 32) | random());
  for (int i = below(4); i > 0; --i) node.list.push_back(static_cast<std::int32_t>(random()));
  if (below(2) == 0) node.tensor = at::full({below(3), below(3)}, below(100));
  if (depth == 0) return node;
  for (int i = below(4); i > 0; --i) node.items.push_back(random_node(random, depth - 1));
  for (int i = below(3); i > 0; --i) node.keyed[below(200) - 100] = random_node(random, depth - 1);
  return node;
}

TEST(Archive, RandomStatesComeBackAndLackNothing) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const StateDict state = save_state(random_node(random, 3));
    Node loaded = random_node(random, 2);
    ASSERT_TRUE(load_state(loaded, state).ok());
    expect_equal(save_state(loaded), state);
    auto entry = state.entries().begin();
    std::advance(entry, random() % state.entries().size());
    const bool optional = entry->first.substr(entry->first.rfind('.') + 1) == "tensor";
    EXPECT_EQ(load_state(loaded, without(state, entry->first)).ok(), optional) << entry->first;
    StateDict retyped = state;
    retyped.put(entry->first, 0.5);
    EXPECT_FALSE(load_state(loaded, retyped).ok()) << entry->first;
  }
}

}  // namespace archive_test
}  // namespace grapevine
