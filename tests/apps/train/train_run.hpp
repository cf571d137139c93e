// The arguments of the runs that tests of the command line start, and what such a run leaves.
#pragma once
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/read_file.hpp"

namespace grapevine {

inline std::vector<std::string> with(std::vector<std::string> arguments,
                                     const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// `train` for a second, in one thread a rank, so that every run of a synchronous algorithm gives
// the same bits. Every process renders the data set anew: the usual 12,000 glyphs would cost it
// more time than its training.
inline std::vector<std::string> small_run(const std::string& algorithm,
                                          const std::filesystem::path& out) {
  return {"train",
          "--algorithm",
          algorithm,
          "--model",
          "mlp",
          "--data",
          "glyphs:1200",
          "--steps",
          "12",
          "--batch-size",
          "8",
          "--out",
          out.string(),
          "--threads",
          "1",
          "--json",
          "--checkpoint-every",
          "0",
          "--validate",
          "end"};
}

// Waits for a file, as long as a slow machine may need.
inline bool appears(const std::filesystem::path& path,
                    std::chrono::seconds timeout = std::chrono::seconds(60)) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!std::filesystem::exists(path) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return std::filesystem::exists(path);
}

// Throws where the run in `out` left no whole summary.
inline nlohmann::json summary_of(const std::filesystem::path& out) {
  std::ifstream file(out / "summary.json");
  return nlohmann::json::parse(file);
}

}  // namespace grapevine
