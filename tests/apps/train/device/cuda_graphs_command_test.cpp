// `grapevine train --cuda-graphs` as a user starts it, on the GPUs of the tests: the training of
// the same job without the option, and the one line where it has no effect.
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/apps/cluster/job_processes.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace cuda_graphs_command_test {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

constexpr char kNoEffect[] = "--cuda-graphs has no effect: ";

ProcessResult run_on_gpus(const Arguments& arguments, const std::string& level = "info") {
  ProcessOptions options;
  options.program = GRAPEVINE_FAKE_GPUS;
  options.environment = {"GRAPEVINE_LOG_LEVEL=" + level, cluster_test::kUcxBetweenHosts};
  return run_process(arguments, options);
}

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

// Of each row of metrics.csv, by rank and step: loss, top1 and top5 as they are written.
std::map<std::string, std::string> figures_of(const fs::path& out) {
  std::map<std::string, std::string> figures;
  std::ifstream file(out / "metrics.csv");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line.rfind("rank,epoch,step,time_s,batch_time_s,exchange_time_s,data_time_s,loss,top1,"
                       "top5,",
                       0),
            0U)
      << line;
  while (std::getline(file, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    if (cells.size() < 10) continue;
    figures[cells[0] + " " + cells[2]] = cells[7] + " " + cells[8] + " " + cells[9];
  }
  return figures;
}

void expect_same_training(const fs::path& found, const fs::path& expected) {
  EXPECT_FALSE(figures_of(expected).empty());
  EXPECT_EQ(figures_of(found), figures_of(expected));
  for (const char* figure : {"final_loss", "test_loss", "contributions"})
    EXPECT_EQ(summary_of(found).at(figure).dump(), summary_of(expected).at(figure).dump());
  EXPECT_EQ(read_file(found / "model.pt"), read_file(expected / "model.pt"));
}

// Three steps of each rank come before the first replay; the job resumes, and its ranks capture
// anew. Accuracies are in every fourth step, which have a graph of their own after the first.
TEST(CudaGraphsCommand, TrainsTheModelOfStepsWithoutGraphs) {
  struct Case {
    const char* peers;
    Arguments launch;
  };
  const std::vector<Case> cases = {{"host", {}}, {"device", {"launch", "-n", "2", "--"}}};
  for (const auto& [peers, launch] : cases) {
    SCOPED_TRACE(peers);
    const TemporaryDirectory folder;
    const auto train = [&, peers = peers, &launch = launch](const std::string& name,
                                                            const Arguments& more) {
      auto result = run_on_gpus(
          with(with(launch, small_run("ar", folder.path() / name)),
               with({"--device", "cuda", "--workers", "2", "--peers", peers, "--log-every", "4"},
                    more)));
      EXPECT_EQ(result.exit_code, 0) << result.describe();
      return result;
    };
    // In how many processes each of two ranks has so many.
    const auto processes_with = [](int replays, const ProcessResult& result) {
      const std::string here = std::to_string(2 * replays);
      return count_of("graphs of the GPUs: " + here + " replays", result.err);
    };
    const std::size_t processes = launch.empty() ? 1 : 2;

    const auto eager = train("eager", {});
    const auto graphs = train("graphs", {"--cuda-graphs"});
    EXPECT_EQ(count_of("graphs of the GPUs", eager.err), 0U) << eager.describe();
    EXPECT_EQ(processes_with(12 - 3, graphs), processes) << graphs.describe();
    for (const char* rank : {"rank 0", "rank 1"}) {
      const std::string captured =
          std::string(rank) + ": captured a CUDA graph of the forward and backward pass";
      EXPECT_EQ(count_of(captured + ": steps replay it", graphs.err), 1U) << graphs.describe();
      EXPECT_EQ(count_of(captured + ", with accuracies", graphs.err), 1U) << graphs.describe();
    }
    EXPECT_EQ(count_of(kNoEffect, graphs.err), 0U) << graphs.describe();
    expect_same_training(folder.path() / "graphs", folder.path() / "eager");

    const auto resumed = [&](const std::string& name, const Arguments& more) {
      return train(name,
                   with({"--steps", "20", "--resume", (folder.path() / name).string()}, more));
    };
    resumed("eager", {});
    const auto continued = resumed("graphs", {"--cuda-graphs"});
    EXPECT_EQ(processes_with(20 - 12 - 3, continued), processes) << continued.describe();
    expect_same_training(folder.path() / "graphs", folder.path() / "eager");
  }
}

// By the output of a run whose log has warnings only, as it has by default. So it is again where
// the run is extended.
TEST(CudaGraphsCommand, OneWarningSaysWhyItHasNoEffect) {
  struct Case {
    Arguments launch, more;
    const char* why;
  };
  const std::vector<Case> cases = {
      {{"launch", "-n", "2", "--"},
       {"--workers", "2", "--steps", "3"},
       "no step is replayed: 3 steps in a row with batches of one shape come before the first\n"},
      {{"launch", "-n", "2", "--"},
       {"--workers", "2", "--steps", "3", "--model", "transformer", "--data", "sequences"},
       "the batches of data 'sequences' differ in length\n"},
      {{},
       {"--workers", "1", "--devices-per-worker", "2", "--steps", "3"},
       "its group reduces gradients while the backward pass computes\n"},
  };
  for (const auto& [launch, more, why] : cases) {
    SCOPED_TRACE(why);
    const TemporaryDirectory folder;
    const fs::path out = folder.path() / "run";
    const Arguments job =
        with(with(launch, small_run("ar", out)), with({"--device", "cuda", "--cuda-graphs"}, more));
    for (const Arguments& extension :
         {Arguments{}, Arguments{"--resume", out.string(), "--steps", "6"}}) {
      SCOPED_TRACE(extension.empty() ? "a new run" : "an extended run");
      const auto result = run_on_gpus(with(job, extension), "warning");
      EXPECT_EQ(result.exit_code, 0) << result.describe();
      EXPECT_EQ(count_of(kNoEffect, result.err), 1U) << result.describe();
      EXPECT_EQ(count_of(kNoEffect + std::string(why), result.err), 1U) << result.describe();
      EXPECT_EQ(count_of("replays", result.err), 0U) << result.describe();
    }
  }
}

}  // namespace cuda_graphs_command_test
}  // namespace grapevine
