// Every file of the corpora through its target: findings stay mended.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_targets.hpp"

namespace grapevine {
namespace corpus_test {

namespace fs = std::filesystem;
using Target = void (*)(const std::uint8_t*, std::size_t);

fs::path corpus_folder() { return fs::path(GRAPEVINE_SOURCE_DIR) / "tests/fuzz/corpus"; }

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::uint8_t> bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void replay(const std::string& name, Target target) {
  const std::vector<fs::path> files = files_of(corpus_folder() / name);
  EXPECT_GE(files.size(), 3U);
  for (const fs::path& file : files) {
    const std::vector<std::uint8_t> bytes = bytes_of(file);
    EXPECT_NO_THROW(target(bytes.data(), bytes.size())) << file;
  }
}

TEST(FuzzCorpus, Codec) { replay("codec", &fuzz_one_codec); }
TEST(FuzzCorpus, Wiring) { replay("wiring", &fuzz_one_wiring); }
TEST(FuzzCorpus, JobFile) { replay("job_file", &fuzz_one_job_file); }
TEST(FuzzCorpus, TraceFrame) { replay("trace_frame", &fuzz_one_trace_frame); }
TEST(FuzzCorpus, TraceFile) { replay("trace_file", &fuzz_one_trace_file); }
TEST(FuzzCorpus, Control) { replay("control", &fuzz_one_control); }
TEST(FuzzCorpus, Checkpoint) { replay("checkpoint", &fuzz_one_checkpoint); }
TEST(FuzzCorpus, Data) { replay("data", &fuzz_one_data); }
TEST(FuzzCorpus, OwnData) { replay("own_data", &fuzz_one_own_data); }

TEST(FuzzCorpus, IsSmall) {
  constexpr std::uintmax_t kMostCorpusBytes = 200'000;
  std::uintmax_t bytes = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(corpus_folder()))
    if (entry.is_regular_file()) bytes += entry.file_size();
  EXPECT_LE(bytes, kMostCorpusBytes);
}

}  // namespace corpus_test
}  // namespace grapevine
