// Which process computes for which worker, and which jobs cannot have such workers.
#include "apps/train/replicas/worker_processes.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "apps/train/train_options.hpp"

namespace grapevine {
namespace worker_processes_test {

// Process `process` of a job with `hosts` hosts of `each` processes, in blocks.
LaunchedProcess launched(std::int32_t process, std::int32_t hosts, std::int32_t each) {
  LaunchedProcess made;
  made.process = process;
  made.processes = hosts * each;
  made.local_process = process % each;
  made.local_processes = each;
  made.head_host = "head";
  made.launcher = "SLURM";
  return made;
}

TrainOptions options_of(std::int64_t replicas) {
  TrainOptions options;
  options.processes_per_worker = replicas;
  return options;
}

std::string error_of(const TrainOptions& options, std::optional<LaunchedProcess> place,
                     bool continues = false) {
  const auto split = split_processes(options, continues, place);
  return split ? "" : split.error().message;
}

void expect_refused(const TrainOptions& options, const std::optional<LaunchedProcess>& place,
                    const std::string& part) {
  EXPECT_NE(error_of(options, place).find(part), std::string::npos)
      << "wanted '" << part << "' in: " << error_of(options, place);
}

TEST(WorkerProcesses, ConsecutiveProcessesAreAWorker) {
  for (const std::int32_t replicas : {2, 4}) {
    for (std::int32_t process = 0; process < 16; ++process) {
      SCOPED_TRACE(std::to_string(process) + " by " + std::to_string(replicas));
      std::optional<LaunchedProcess> place = launched(process, 2, 8);
      const auto split = split_processes(options_of(replicas), false, place);
      ASSERT_TRUE(split) << split.error().message;
      EXPECT_EQ(split->replica, process % replicas);
      EXPECT_EQ(split->replicas, replicas);
      EXPECT_EQ(split->worker, process / replicas);
      EXPECT_EQ(split->is_member(), process % replicas != 0);
      EXPECT_EQ(split->process_of(0), process - process % replicas);
      EXPECT_EQ(place->process, process / replicas);
      EXPECT_EQ(place->processes, 16 / replicas);
      EXPECT_EQ(place->local_process, process % 8 / replicas);
      EXPECT_EQ(place->local_processes, 8 / replicas);
    }
  }
}

TEST(WorkerProcesses, OneProcessIsAWorkerByItself) {
  std::optional<LaunchedProcess> place = launched(3, 2, 8);
  const auto split = split_processes(options_of(1), true, place);
  ASSERT_TRUE(split);
  EXPECT_FALSE(split->is_member());
  EXPECT_EQ(place->process, 3);
  EXPECT_EQ(place->processes, 16);
  place.reset();
  EXPECT_TRUE(split_processes(options_of(1), false, place));
}

TEST(WorkerProcesses, JobsThatDoNotFitAreRefused) {
  const TrainOptions two = options_of(2);
  expect_refused(two, std::nullopt, "no launcher has started several processes");
  expect_refused(two, launched(0, 1, 3), "the job has 3 processes: start a multiple of 2");
  expect_refused(two, launched(0, 2, 3), "share a host");  // 3 on each host
  LaunchedProcess cyclic = launched(1, 2, 2);
  cyclic.local_process = 0;  // process 1 is the first of the second host
  expect_refused(two, cyclic, "share a host");
  LaunchedProcess unknown = launched(0, 1, 4);
  unknown.local_processes = 1;  // the variables do not say it
  expect_refused(two, unknown, "share a host");
}

// No cyclic distribution passes in all processes of a job.
TEST(WorkerProcesses, CyclicDistributionsAreRefusedSomewhere) {
  for (const std::int32_t replicas : {2, 3, 4}) {
    for (std::int32_t hosts = 2; hosts <= 6; ++hosts) {
      const std::int32_t each = 2 * replicas;
      bool refused = false;
      for (std::int32_t process = 0; process < hosts * each; ++process) {
        LaunchedProcess place = launched(process, hosts, each);
        place.local_process = process / hosts;
        refused = refused || !error_of(options_of(replicas), place).empty();
      }
      EXPECT_TRUE(refused) << hosts << " hosts, " << replicas;
    }
  }
}

TEST(WorkerProcesses, OptionsThatDoNotFitAreRefused) {
  const LaunchedProcess place = launched(0, 1, 4);
  TrainOptions options = options_of(2);
  options.devices_per_worker = 2;
  expect_refused(options, place, "--devices-per-worker 2");
  options = options_of(2);
  options.workers = 3;
  expect_refused(options, place, "--workers 3");
  options.workers = 1;
  EXPECT_EQ(error_of(options, place), "");
  options = options_of(2);
  options.max_ranks = 8;
  expect_refused(options, place, "--max-ranks");
  options = options_of(2);
  options.place = place;
  expect_refused(options, place, "--join");
  options = options_of(2);
  options.peers = "device";
  EXPECT_EQ(error_of(options, place), "");
  EXPECT_NE(error_of(options_of(2), place, /*continues=*/true).find("--on-failure"),
            std::string::npos);
}

}  // namespace worker_processes_test
}  // namespace grapevine
