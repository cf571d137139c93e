// Mutants keep the form of their input, differ from it, and depend on the seed alone.
#include "tests/fuzz/mutators/mutators.hpp"

#include <gtest/gtest.h>

#include <set>

#include "algorithms/wiring/wiring.hpp"
#include "messages/trace/trace_format.hpp"
#include "tests/fuzz/trace_input.hpp"

namespace grapevine {
namespace mutators_test {

using fuzzing::Rng;
using Mutate = std::string (*)(std::string_view, Rng&);

constexpr int kMutants = 300;

// Of one input.
void expect_variety(Mutate mutate, const std::string& input) {
  Rng rng(1);
  std::set<std::string> different;
  for (int i = 0; i < kMutants; ++i) {
    Rng same = rng;
    const std::string mutant = mutate(input, rng);
    EXPECT_EQ(mutant, mutate(input, same)) << i;
    different.insert(mutant);
  }
  EXPECT_GT(different.size(), kMutants / 2U);
}

// The share of inputs that `holds` for, of a chain of mutants from nothing.
template <class Holds>
double share_of_chain(Mutate mutate, Holds holds) {
  Rng rng(2);
  int held = 0;
  std::string input;
  for (int i = 0; i < kMutants; ++i) {
    input = i % 5 == 0 ? mutate("", rng) : mutate(input, rng);
    held += holds(input) ? 1 : 0;
  }
  return static_cast<double>(held) / kMutants;
}

bool is_wiring(const std::string& text) { return Wiring::parse_toml(text, "text").ok(); }

TEST(FuzzMutators, TomlVariesAndIsOftenAWiring) {
  expect_variety(&fuzzing::mutate_wiring, "[wiring]\nexchange = \"gossip\"\n");
  expect_variety(&fuzzing::mutate_job_file, "workers = 2\n[wiring]\nexchange = \"gossip\"\n");
  EXPECT_GT(share_of_chain(&fuzzing::mutate_wiring, is_wiring), 0.2);
}

TEST(FuzzMutators, JsonStaysJson) {
  expect_variety(&fuzzing::mutate_checkpoint, R"({"version": 2, "ranks": 1, "job": {}})");
  EXPECT_EQ(share_of_chain(&fuzzing::mutate_checkpoint,
                           [](const std::string& text) {
                             return nlohmann::json::parse(text, nullptr, false).is_object();
                           }),
            1.0);
}

TEST(FuzzMutators, TracesOftenBeginWithAHeader) {
  expect_variety(&fuzzing::mutate_trace_file, "");
  const auto has_header = [](const std::string& input) {
    const std::string file = fuzzing::trace_file_of(input);
    constexpr std::size_t kBody = kTraceMagicBytes + kFrameHeadBytes;
    if (file.size() < kBody) return false;
    const auto head = decode_frame_head(std::string_view(file).substr(kTraceMagicBytes));
    return head && head->type == FrameType::header &&
           decode_header(std::string_view(file).substr(kBody, head->length)).ok();
  };
  EXPECT_GT(share_of_chain(&fuzzing::mutate_trace_file, has_header), 0.2);
}

}  // namespace mutators_test
}  // namespace grapevine
