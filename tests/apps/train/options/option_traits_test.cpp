// The table of what is true of each option of `train`: it has every option once, with its own
// member, and no contradiction.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "apps/train/options/option_traits.hpp"

namespace grapevine {
namespace option_traits_test {

using T = OptionTraits;

struct Declared {
  CLI::App app;
  TrainOptions options;
  Declared() { declare_train_options(app, options); }
};

std::string name_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? "job" : option.get_lnames().front();
}

TEST(OptionTraits, EachDeclaredOptionHasOneRow) {
  const Declared declared;
  std::multiset<std::string> names, rows;
  for (const CLI::Option* option : declared.app.get_options()) names.insert(name_of(*option));
  for (const T& option : option_traits()) rows.insert(option.name);
  EXPECT_EQ(names, rows) << "a new option needs a row in option_traits.cpp";
}

// Sets one option, and looks at all rows.
TEST(OptionTraits, TheMemberIsThatOfTheOption) {
  for (const T& option : option_traits()) {
    if (std::holds_alternative<std::monostate>(option.member)) continue;
    SCOPED_TRACE(option.name);
    const bool is_switch = std::holds_alternative<bool TrainOptions::*>(option.member);
    const bool is_text =
        std::holds_alternative<std::string TrainOptions::*>(option.member) ||
        std::holds_alternative<std::vector<std::string> TrainOptions::*>(option.member);
    const std::string value = is_switch ? "true" : is_text ? "other" : "77";
    const std::string name = option.name;
    Declared given;
    given.app.parse(std::vector<std::string>{name == "job" ? value : "--" + name + "=" + value});
    for (const T& other : option_traits())
      EXPECT_EQ(is_default(given.options, other), name != other.name) << other.name;
    EXPECT_EQ(value_text(given.options, option), value);
    set_default(given.options, option);
    EXPECT_TRUE(is_default(given.options, option));
  }
}

TEST(OptionTraits, DoNotContradictEachOther) {
  for (const T& option : option_traits()) {
    SCOPED_TRACE(option.name);
    const auto implies = [&option](T::Trait trait, bool holds) {
      return !option.has(trait) || holds;
    };
    const bool stated = option.has(T::identity) || option.has(T::identity_unless_default);
    EXPECT_FALSE(option.has(T::identity) && option.has(T::identity_unless_default));
    // An option that checkpoints do not state may always change.
    EXPECT_TRUE(implies(T::may_change_on_resume, stated));
    EXPECT_TRUE(implies(T::refused_in_simulation, option.has(T::not_simulated)));
    EXPECT_TRUE(implies(T::needs_cluster, option.has(T::stays_here)));
    // apply_settings() reads numbers, and the name of an algorithm.
    const bool number = std::holds_alternative<double TrainOptions::*>(option.member);
    EXPECT_TRUE(implies(T::live, number || option.name == std::string("algorithm")));
  }
}

TEST(OptionTraits, OptionsOfOtherVerbsHaveNone) {
  for (unsigned bit = 1; bit <= T::refused_in_simulation; bit <<= 1)
    for (const char* name : {"maths", "wiring.topology", ""})
      EXPECT_FALSE(option_has(name, static_cast<T::Trait>(bit))) << name;
}

// docs/composition.md gives the reason for each option that job.toml leaves out.
TEST(OptionTraits, TheDocumentNamesWhatJobTomlLeavesOut) {
  std::ifstream file(std::filesystem::path(GRAPEVINE_SOURCE_DIR) / "docs" / "composition.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const auto begin = page.find("- Left out because the repetition");
  ASSERT_NE(begin, std::string::npos);
  const std::string paragraph = page.substr(begin, page.find("\n- ", begin) - begin);
  const std::set<std::string> in_no_help = {"help", "help-all", "job", "clock-start"};
  for (const std::string& name : options_with(T::not_in_job_file)) {
    if (in_no_help.count(name) > 0) continue;
    EXPECT_NE(paragraph.find("`" + name + "`"), std::string::npos) << name;
  }
}

}  // namespace option_traits_test
}  // namespace grapevine
