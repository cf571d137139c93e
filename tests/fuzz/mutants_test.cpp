// Some mutants of the files of the corpora through their targets, in every build: a short run of
// what scripts/fuzz does for long. Equal seeds give equal mutants.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_targets.hpp"
#include "tests/fuzz/mutators/mutators.hpp"

namespace grapevine {
namespace mutants_test {

namespace fs = std::filesystem;
using fuzzing::Rng;
using Target = void (*)(const std::uint8_t*, std::size_t);
using Mutate = std::string (*)(std::string_view, Rng&);

constexpr std::uint64_t kMutants = 400;    // of a target; each has a seed
constexpr std::size_t kMostBytes = 4096;   // as in scripts/fuzz
constexpr std::uint64_t kMostChanges = 4;  // of one mutant

std::vector<std::string> corpus_of(const std::string& target) {
  std::vector<fs::path> paths;
  for (const auto& entry :
       fs::directory_iterator(fs::path(GRAPEVINE_SOURCE_DIR) / "tests/fuzz/corpus" / target))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

// A number at any place, as the formats have them: lengths, counts and their limits.
void write_number(std::string& bytes, Rng& rng) {
  const std::uint64_t numbers[] = {0,          1,          0x7f,  0xff,  0x7fffffff,  0xffffffff,
                                   1ULL << 32, 1ULL << 63, ~0ULL, rng(), bytes.size()};
  const std::uint64_t number = numbers[rng() % std::size(numbers)];
  const std::size_t size = std::min<std::size_t>(std::size_t{1} << rng() % 4, bytes.size());
  std::memcpy(bytes.data() + rng() % (bytes.size() - size + 1), &number, size);
}

// Changes that know no format. `other`: of the same corpus.
void change_bytes(std::string& bytes, const std::string& other, Rng& rng) {
  const std::size_t at = rng() % (bytes.size() + 1);
  switch (bytes.empty() ? 4 : rng() % 6) {
    case 0:
      bytes[rng() % bytes.size()] ^= static_cast<char>(1U << rng() % 8);
      break;
    case 1:
      bytes[rng() % bytes.size()] = static_cast<char>(rng());
      break;
    case 2:
      write_number(bytes, rng);
      break;
    case 3:
      bytes.erase(at, 1 + rng() % 16);
      break;
    case 4:
      bytes.insert(at, 1 + rng() % 8, static_cast<char>(rng()));
      break;
    default:  // the head of one, the tail of the other
      bytes = bytes.substr(0, at) + other.substr(other.empty() ? 0 : rng() % other.size());
  }
}

// `mutate`: keeps the form of an input; null: the target has none.
std::string mutant_of(const std::vector<std::string>& corpus, Mutate mutate, Rng& rng) {
  std::string mutant = fuzzing::any_of(corpus, rng);
  for (std::uint64_t changes = 1 + rng() % kMostChanges; changes > 0; --changes)
    if (mutate != nullptr && rng() % 4 != 0)
      mutant = mutate(mutant, rng);
    else
      change_bytes(mutant, fuzzing::any_of(corpus, rng), rng);
  if (mutant.size() > kMostBytes) mutant.resize(kMostBytes);
  return mutant;
}

std::string hex_of(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

void expect_kept_promises(const std::string& name, Target target, Mutate mutate = nullptr) {
  const std::vector<std::string> corpus = corpus_of(name);
  ASSERT_FALSE(corpus.empty());
  for (std::uint64_t seed = 1; seed <= kMutants; ++seed) {
    Rng rng(seed);
    const std::string mutant = mutant_of(corpus, mutate, rng);
    try {
      target(reinterpret_cast<const std::uint8_t*>(mutant.data()), mutant.size());
    } catch (const std::exception& broken) {
      ADD_FAILURE() << name << ", seed " << seed << ": " << broken.what()
                    << "\nthe input, for the corpus: xxd -r -p <<< " << hex_of(mutant);
    }
  }
}

TEST(FuzzMutants, Codec) { expect_kept_promises("codec", &fuzz_one_codec); }
TEST(FuzzMutants, Wiring) {
  expect_kept_promises("wiring", &fuzz_one_wiring, &fuzzing::mutate_wiring);
}
TEST(FuzzMutants, JobFile) {
  expect_kept_promises("job_file", &fuzz_one_job_file, &fuzzing::mutate_job_file);
}
TEST(FuzzMutants, TraceFrame) { expect_kept_promises("trace_frame", &fuzz_one_trace_frame); }
TEST(FuzzMutants, TraceFile) {
  expect_kept_promises("trace_file", &fuzz_one_trace_file, &fuzzing::mutate_trace_file);
}
TEST(FuzzMutants, Control) { expect_kept_promises("control", &fuzz_one_control); }
TEST(FuzzMutants, Checkpoint) {
  expect_kept_promises("checkpoint", &fuzz_one_checkpoint, &fuzzing::mutate_checkpoint);
}
TEST(FuzzMutants, Data) { expect_kept_promises("data", &fuzz_one_data); }
TEST(FuzzMutants, OwnData) { expect_kept_promises("own_data", &fuzz_one_own_data); }

}  // namespace mutants_test
}  // namespace grapevine
