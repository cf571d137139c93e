#include "apps/simulate/simulate_command.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/trace/trace_command.hpp"
#include "messages/trace/merged_trace.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"
#include "tests/apps/verb_runner.hpp"
#include "tests/file_size_limit.hpp"

namespace grapevine {
namespace simulate_command_test {

const testing_apps::VerbRunner kVerb(make_simulate_command);

std::filesystem::path folder_of(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / name;
}
std::string folder(const std::string& name) {
  std::filesystem::remove_all(folder_of(name));
  return folder_of(name).string();
}

constexpr char kSmall[] =
    "--workers 4 --steps 10 --maths quadratic --parameters 1000 --compute 20ms --network "
    "alpha=1e-3,beta=1e-7";

nlohmann::json simulate(const std::string& options, const std::string& out) {
  const auto outcome = kVerb.run(options + " --json --out " + out, false);
  EXPECT_TRUE(outcome.result.ok()) << options << ": " << outcome.result.error().message;
  return nlohmann::json::parse(ProcessResult::last_line(outcome.out), nullptr, false);
}

TEST(SimulateCommand, WritesTheFolderOfARunAndEqualRunsHaveEqualHashes) {
  const std::string out = folder("simulated");
  const auto first = simulate(kSmall, out);
  for (const char* file : {"summary.json", "metrics.csv", "job.toml", "trace"})
    EXPECT_TRUE(std::filesystem::exists(out + "/" + file)) << file;
  EXPECT_GT(first["virtual_seconds"], 0.2);
  EXPECT_GT(first["events"], 100);
  EXPECT_EQ(first["contributions"]["produced"], 40);
  const auto second = simulate(kSmall, folder("simulated_again"));
  EXPECT_EQ(first["trace_hash"], second["trace_hash"]);
  EXPECT_EQ(first["events"], second["events"]);
  const auto other = simulate(std::string(kSmall) + " --seed 2", folder("simulated_other"));
  EXPECT_NE(first["trace_hash"], other["trace_hash"]);
}

// Per step: the gradient, then a ring of 2 (P - 1) messages one after the other.
TEST(SimulateCommand, AllReduceTakesTheTimeOfItsRing) {
  const auto summary = simulate(
      "--algorithm ar --set wiring.all_reduce=ring --workers 4 --steps 20 --maths none "
      "--parameters 1000000 --compute 50ms --network alpha=1e-4,beta=8e-9",
      folder("simulated_ring"));
  const double slice = 1e-4 + 8e-9 * (4e6 / 4 + 100);
  EXPECT_NEAR(summary["step_seconds"]["mean"].get<double>(), 0.05 + 6 * slice, 1e-3);
  EXPECT_TRUE(summary["final_loss"].is_null());
}

// A message of a whole model on the way takes `share` of the time of a gradient: gossip that
// overlaps hides the shorter of the two, gossip that waits for it takes both.
TEST(SimulateCommand, OverlapHidesTheShorterOfGradientAndMessage) {
  constexpr double kCompute = 0.05, kLatency = 2.5e-5, kBytes = 4e6 + 100;
  for (const int workers : {2, 4, 8}) {
    for (const double share : {0.25, 0.8, 1.0, 1.6}) {
      const double per_byte = (share * kCompute - kLatency) / kBytes;
      const auto step_of = [&](const std::string& preset) {
        const auto summary = simulate(
            fmt::format("--algorithm {} --workers {} --steps 100 --maths none --parameters 1000000 "
                        "--compute {}s --network alpha={},beta={:.9e}",
                        preset, workers, kCompute, kLatency, per_byte),
            folder("simulated_overlap"));
        EXPECT_EQ(summary["contributions"]["applied"], 100 * workers);
        return summary["step_seconds"]["mean"].get<double>();
      };
      SCOPED_TRACE(fmt::format("{} workers, communication {} of the gradient", workers, share));
      EXPECT_LE(step_of("osgp"), 1.05 * kCompute * std::max(1.0, share));
      // What overlap saves: else the line above would hold without it.
      EXPECT_GE(step_of("sgp"), 0.95 * kCompute * (1 + share));
    }
  }
}

// The parameters that stand for others choose the all-reduce that these would.
TEST(SimulateCommand, WithoutMathsAVectorIsAsShortAsItIsInTheModel) {
  for (const int parameters : {300, 5000}) {
    const auto messages = [&](const std::string& maths) {
      return simulate("--algorithm ar --workers 4 --steps 3 --maths " + maths + " --parameters " +
                          std::to_string(parameters),
                      folder("simulated_short_" + maths))["messages_sent"]
          .get<int>();
    };
    EXPECT_EQ(messages("none"), messages("quadratic")) << parameters;
    // By pairs, or in two rounds with all others.
    EXPECT_EQ(messages("none"), 4 * 3 * (parameters == 300 ? 2 : 6));
  }
}

// Also that of a level, and of a wiring that comes later.
TEST(SimulateCommand, WithoutMathsEveryWiringSumsAsTheModelDoes) {
  const std::string levels = folder("sums_of_levels.toml"), change = folder("sums_of_change.toml");
  const auto messages = [](const std::string& options) {
    return simulate("--maths none --workers 16 --steps 8 --parameters 25000000 " + options,
                    folder("simulated_sums"))["messages_sent"]
        .get<int>();
  };
  for (const bool ring : {false, true}) {
    const std::string stated = ring ? "all_reduce = 'ring'\n" : "";
    std::ofstream(levels + (ring ? ".ring" : ""))
        << "[[wiring.level]]\nranks = 8\nexchange = 'aggregate'\n"
        << stated << "[[wiring.level]]\nexchange = 'gossip'\nlocal_steps = 2\n";
    std::ofstream(change + (ring ? ".ring" : "")) << "[[change]]\nepoch = 0.25\nalgorithm = 'ar'\n"
                                                  << (ring ? "wiring.all_reduce = 'ring'\n" : "");
  }
  EXPECT_EQ(messages(levels), messages(levels + ".ring"));
  EXPECT_EQ(messages("--algorithm sgp --schedule " + change),
            messages("--algorithm sgp --schedule " + change + ".ring"));
}

TEST(SimulateCommand, TheJobFileRepeatsTheRun) {
  const std::string out = folder("simulated_job");
  const auto first = simulate(std::string(kSmall) + " --algorithm osgp --seed 5", out);
  const auto second = simulate(out + "/job.toml", folder("simulated_job_again"));
  EXPECT_EQ(first["trace_hash"], second["trace_hash"]);
}

TEST(SimulateCommand, TheJobFileOfARunFromATraceRepeatsIt) {
  const std::string recorded = folder("simulated_recorded"), out = folder("simulated_from_trace");
  simulate(std::string(kSmall) + " --batch-size 7 --network alpha=1e-4,beta=1e-6", recorded);
  const auto first = simulate("--from-trace " + recorded + " --algorithm ar", out);
  EXPECT_EQ(first["steps"], 10);
  const auto second = simulate(out + "/job.toml", folder("simulated_from_trace_again"));
  EXPECT_EQ(first["trace_hash"], second["trace_hash"]);
  for (const char* key : {"parameters", "batch_size", "network", "samples", "virtual_seconds"})
    EXPECT_EQ(first.value(key, nlohmann::json()), second.value(key, nlohmann::json())) << key;
}

// What a run has done before it is given up is kept, and its error is the reason.
TEST(SimulateCommand, ARunPastItsDeadlineKeepsItsRowsAndSaysSo) {
  const std::string out = folder("simulated_deadline");
  const ProcessResult result =
      run_process({"simulate", "--deadline", "0.3", "--algorithm", "ar", "--workers", "2",
                   "--steps", "30", "--maths", "none", "--parameters", "50", "--out", out});
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_NE(ProcessResult::last_line(result.err).find("deadline"), std::string::npos)
      << result.describe();
  std::ifstream rows(out + "/metrics.csv");
  std::size_t lines = 0;
  for (std::string line; std::getline(rows, line);) ++lines;
  EXPECT_GT(lines, 5u) << result.describe();
}

TEST(SimulateCommand, TheSummarySaysWhereARunCameFrom) {
  const std::string out = folder("simulated_origin");
  const auto summary = simulate(std::string(kSmall) + " --algorithm ar", out);
  EXPECT_EQ(summary["options"]["maths"], "quadratic");
  EXPECT_EQ(summary["options"]["steps"], 10);
  EXPECT_EQ(summary["out"], out);
  for (const char* key : {"host", "date"}) EXPECT_TRUE(summary[key].is_string()) << key;
}

TEST(SimulateCommand, ATermOfTheNetworkWithoutANumberIsNamed) {
  const auto outcome = kVerb.run("--network alpha", false);
  ASSERT_FALSE(outcome.result.ok());
  EXPECT_EQ(outcome.result.error().message, "--network 'alpha': expected alpha=NUMBER");
}

TEST(SimulateCommand, AFigureThatIsNotFiniteFailsAsInTraining) {
  const std::string out = folder("simulated_infinite");
  const auto outcome = kVerb.run(
      "--workers 2 --model mlp --data glyphs:320 --lr 1e38 --steps 1 --json --out " + out, false);
  ASSERT_FALSE(outcome.result.ok());
  EXPECT_NE(outcome.result.error().message.find("is not finite"), std::string::npos);
  std::ifstream file(out + "/summary.json");
  const auto summary = nlohmann::json::parse(file);
  EXPECT_EQ(summary["error"], outcome.result.error().message);
  EXPECT_TRUE(summary["test_loss"].is_null());
}

std::string schedule(const std::string& name, const std::string& changes) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << changes;
  return path;
}

// Groups of a level count alike in the level around it, however many ranks they have lost: with
// other weights of theirs the whole model would be scaled in each period.
TEST(SimulateCommand, UnequalGroupsOfALevelKeepTheModelsScale) {
  const auto loss = [](const std::string& averaging, const std::string& faults) {
    return simulate(
               "--algorithm custom --maths quadratic --parameters 200 --workers 12 --steps 300 "
               "--lr 0.02 --momentum 0 --compute 0.01 --set wiring.exchange=aggregate "
               "--set wiring.level.1.ranks=2 --set wiring.level.1.exchange=aggregate "
               "--set wiring.level.2.ranks=6 --set wiring.level.2.exchange=gossip "
               "--set wiring.level.2.topology=star --set wiring.level.2.averaging=" +
                   averaging + faults,
               folder("unequal"))["test_loss"]
        .get<double>();
  };
  for (const char* faults : {"", " --fail crash=3@0.5", " --fail crash=3@0.5,crash=5@0.6"}) {
    SCOPED_TRACE(faults);
    EXPECT_NEAR(loss("push-sum", faults), loss("symmetric", faults), 1);
  }
}

// The mean of clipped parts of late ranks is no longer than a clipped mean.
TEST(SimulateCommand, LateGradientsAreClippedWhereTheWiringChanges) {
  const std::string changes =
      schedule("clipped.toml", "[[change]]\nepoch = 0.4\nalgorithm = 'ar'\nwiring.clip = 0.001\n");
  const std::string out = folder("clipped");
  simulate(
      "--algorithm eager-solo --maths quadratic --parameters 400 --workers 4 --steps 60 --lr 0.1 "
      "--momentum 0 --set wiring.staleness=30 --set wiring.clip=0.001 --delay rank=0:170ms "
      "--schedule " +
          changes,
      out);
  std::ifstream rows(out + "/metrics.csv");
  std::string row;
  std::getline(rows, row);
  double last = 0;
  while (std::getline(rows, row)) {
    double loss = 0;
    int rank = -1;
    if (std::sscanf(row.c_str(), "%d,%*f,%*d,%*f,%*f,%*f,%*f,%lf", &rank, &loss) != 2 || rank != 1)
      continue;
    if (last > 0) {
      EXPECT_NEAR(loss, last, 0.1) << row;
    }
    last = loss;
  }
  EXPECT_GT(last, 0);
}

TEST(SimulateCommand, HealthyRunsPassTheirChecks) {
  const std::string biased =
      "--algorithm custom --maths quadratic --parameters 40 --workers 4 --steps 20 --momentum 0 "
      "--set wiring.exchange=gossip --set wiring.topology=star --set wiring.averaging=biased";
  const std::string groups =
      "--algorithm custom --maths quadratic --parameters 40 --workers 4 --steps 40 --momentum 0 "
      "--compute exponential=0.01 --set wiring.exchange=group --set wiring.pack=difference --set "
      "wiring.outer=nesterov --set wiring.staleness=1 --fail crash=3@0.2";
  for (const std::string& run : {biased, groups}) {
    const auto outcome = kVerb.run(run + " --seeds 1..4", false);
    EXPECT_TRUE(outcome.result.ok()) << run << "\n" << outcome.result.error().message;
  }
}

// Of a run that is stuck the trace is wanted most.
TEST(SimulateCommand, TheTraceOfARunThatMeetsItsDeadlineIsWhole) {
  const std::string out = folder("met_deadline");
  const auto outcome = kVerb.run(
      "--workers 4 --steps 100 --maths quadratic --parameters 1000 --compute 20ms --algorithm sgp "
      "--deadline 0.13 --out " +
          out,
      false);
  ASSERT_FALSE(outcome.result.ok());
  auto trace = MergedTrace::open(out);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_TRUE(trace->missing().empty()) << trace->missing().front();
  trace->rewind();
  std::int64_t last_ns = 0;
  while (const TraceRecord* record = trace->next()) last_ns = record->time_ns;
  EXPECT_GT(last_ns, 90'000'000) << "up to the deadline";
}

// It ends, long before its deadline.
void expect_end(const std::string& options, double before_s) {
  EXPECT_LT(simulate(options, folder("ends"))["virtual_seconds"], before_s) << options;
}

// Of ar, whose ring waits for each message; what follows is of its members and wiring.
constexpr char kSlowRing[] =
    "--algorithm ar --workers 4 --steps 80 --maths quadratic --parameters 2000 --compute 0.01 "
    "--deadline 100 --network alpha=25e-6,beta=8e-7 ";

// A server rests while a rank dies and returns, and serves again: it has heard of the end of the
// rank's first life alone.
TEST(SimulateCommand, AServerThatHasRestedKnowsARankThatHasReturned) {
  const std::string changes = schedule("rested.toml",
                                       "[[change]]\nepoch = 0.25\nalgorithm = 'ar'\n"
                                       "[[change]]\nepoch = 0.7\nalgorithm = 'gem'\n");
  const auto summary = simulate(
      "--algorithm gem --workers 4 --steps 80 --maths quadratic --parameters 1000 --compute 0.01 "
      "--deadline 100 --fail crash=2@0.4,restart=2@0.45 --schedule " +
          changes,
      folder("rested"));
  EXPECT_LT(summary["virtual_seconds"], 10);
  EXPECT_EQ(summary["lost_ranks"].size(), 0U);
}

// A rank dies while a change of the wiring drains, and another one has to take the model of a third
// first: the next view is proposed while that model is on its way.
TEST(SimulateCommand, ARankThatIsBehindTakesItsStateBeforeTheNextView) {
  const std::string changes =
      schedule("behind.toml", "[[change]]\nepoch = 0.25\nalgorithm = 'gem'\n");
  for (const char* death : {"0.42", "0.422", "0.424", "0.426", "0.43"})
    expect_end(kSlowRing + fmt::format("--fail crash=3@{} --schedule {}", death, changes), 10);
}

// The state of a server of the new wiring is on its way when the members change, or its donor dies.
TEST(SimulateCommand, AServerOfANewWiringGetsItsSliceInALaterView) {
  const std::string changes =
      schedule("sliced.toml", "[[change]]\nepoch = 0.25\nalgorithm = 'gem'\n");
  for (const int dies : {0, 3})
    for (const char* death : {"0.44", "0.452", "0.455", "0.458", "0.46", "0.47", "0.48"})
      expect_end(kSlowRing + fmt::format("--fail crash={}@{} --schedule {}", dies, death, changes),
                 10);
}

// Ranks that share a model end together, also where some of them have taken more local steps, and
// H or the members change.
TEST(SimulateCommand, RanksOfOneModelEndTogether) {
  const std::string epochs =
      "--maths full --model linear --validate end --batch-size 20 --compute 0.01 --deadline 300 ";
  for (const char* run :
       {"--workers 5 --data glyphs:2000 --epochs 4 --algorithm local-sgd --set "
        "wiring.local_steps=0:8,0.5:20,2:24 --delay rank=1:15ms,rank=2:15ms,rank=3:2ms,rank=4:15ms "
        "--fail crash=3@0.779,restart=3@0.829 --seed 9",
        "--workers 5 --data glyphs:2000 --epochs 4 --algorithm diloco --set "
        "wiring.local_steps=0:4,1.3:16,2:10 --delay rank=1:5ms,rank=2:15ms,rank=3:9ms --fail "
        "crash=2@1.179 --seed 12",
        "--workers 6 --data glyphs:1000 --epochs 3 --algorithm local-sgd --set "
        "wiring.local_steps=40 --delay rank=1:30ms --fail join=3@0.36,join=4@0.36,join=5@0.36"})
    expect_end(epochs + run, 60);
}

// A server that has waited for its slice hears with it that another one has left.
TEST(SimulateCommand, AServerThatBeginsLateAnswersWhatItWasAsked) {
  const std::string changes =
      schedule("fewer.toml",
               "[[change]]\nepoch = 0.2\nalgorithm = 'gem'\nwiring.servers = 2\n"
               "[[change]]\nepoch = 0.3\nalgorithm = 'downpour'\nwiring.servers = 1\n");
  for (const char* returns : {"984800us", "1.0", "1.02", "1.05", "1.06"})
    expect_end(
        "--algorithm sgp --workers 6 --steps 40 --min-ranks 1 --maths quadratic --parameters 5000 "
        "--network alpha=25e-6,beta=8e-7,control=0.01 --compute 0.01 --deadline 30 --seed 15 "
        "--fail crash=4@845600us,restart=4@" +
            std::string(returns) + " --schedule " + changes,
        20);
}

TEST(SimulateCommand, TwoPlannedChangesCloseToEachOtherTakePlace) {
  const std::string changes =
      schedule("close.toml",
               "[[change]]\nepoch = 0.25\nalgorithm = 'downpour'\nwiring.local_steps = 8\n"
               "[[change]]\nepoch = 0.2625\nlr = 0.02\n");
  expect_end(
      "--algorithm ar --workers 4 --steps 80 --maths none --parameters 25557032 --compute 0.05 "
      "--deadline 300 --schedule " +
          changes,
      60);
}

// Whatever ranks have done by a change of the wiring, all together take the samples of the epochs
// that were asked for.
TEST(SimulateCommand, ChangesKeepTheNumberOfSamplesOfRanksOfUnequalPace) {
  const std::string once = schedule("paces.toml", "[[change]]\nepoch = 1\nalgorithm = 'ar'\n");
  std::string numbers;
  for (const double epoch : {0.4, 0.8, 1.2, 1.6})
    numbers += fmt::format("[[change]]\nepoch = {}\nlr = {}\n", epoch, 0.05 - epoch / 100);
  const std::string often = schedule("numbers.toml", numbers);
  const auto samples = [](const std::string& options) {
    return simulate(
               "--workers 4 --epochs 2 --maths full --model linear --data glyphs:3200 "
               "--batch-size 32 --compute 0.01 --validate end --delay rank=1:15ms,rank=2:15ms,"
               "rank=3:15ms " +
                   options,
               folder("paces"))["samples"]
        .get<int>();
  };
  const int epochs = 2 * 3200;
  for (const char* algorithm :
       {"downpour", "gem", "easgd", "osgp --set wiring.staleness=4", "ad-psgd"}) {
    SCOPED_TRACE(algorithm);
    const std::string preset = std::string("--algorithm ") + algorithm;
    // Each rank of a pair hears of the end with a message, and takes a few gradients more.
    const int beyond = algorithm == std::string("ad-psgd") ? epochs / 15 : epochs / 50;
    EXPECT_NEAR(samples(preset), epochs, beyond) << "without a change";
    EXPECT_NEAR(samples(preset + " --schedule " + once), epochs, beyond);
    EXPECT_NEAR(samples(preset + " --schedule " + often), epochs, beyond);
  }
  // Of its local steps each rank alone knows: these come at the end, not once more with each
  // change.
  const std::string local = "--algorithm ad-psgd --set wiring.local_steps=10";
  const int unchanged = samples(local);
  for (const std::string& changes : {once, often})
    EXPECT_LE(samples(local + " --schedule " + changes), unchanged + epochs / 20);
}

// A rank returns to levels whose optimizer keeps another state than that of the start.
TEST(SimulateCommand, ARankReturnsToAnOptimizerOfAnotherState) {
  const std::string changes = schedule(
      "another_state.toml",
      "[[change]]\nepoch = 0.2\nwiring.level.1.ranks = 2\nwiring.level.1.exchange = 'aggregate'\n"
      "wiring.level.1.compress = 'top-k'\nwiring.level.1.density = 0.3\n"
      "wiring.level.1.momentum_correction = true\n");
  const auto summary = simulate(
      "--algorithm ar --workers 4 --steps 80 --maths quadratic --parameters 1000 --compute 0.01 "
      "--deadline 100 --fail crash=3@0.4,restart=3@0.5 --schedule " +
          changes,
      folder("another_state"));
  EXPECT_EQ(summary["lost_ranks"].size(), 0U);
}

// In nodes, too, operations are compared with those of the same exchange.
TEST(SimulateCommand, AgreementIsCheckedInNodesWhoseNumbersChange) {
  const std::string changes = schedule("agreement.toml", "[[change]]\nepoch = 0.3\nlr = 0.02\n");
  const auto outcome = kVerb.run(
      "--steps 36 --maths quadratic --parameters 300 --algorithm ar --workers 6 --set "
      "wiring.hierarchy=3 --seeds 1..2 --schedule " +
          changes,
      false);
  EXPECT_TRUE(outcome.result.ok()) << outcome.result.error().message;
}

// The loss for which a synchronous round waits becomes known after the server has counted its
// messages for a change of members.
TEST(SimulateCommand, AServerAnswersNothingOnceItHasCountedItsMessages) {
  for (const char* second : {"320ms", "321ms", "322ms"}) {
    SCOPED_TRACE(second);
    const auto summary = simulate(
        "--algorithm easgd --set wiring.synchronous=true --set wiring.local_steps=1 --workers 5 "
        "--min-ranks 1 --steps 60 --maths quadratic --parameters 1000 --compute 0.01 --deadline "
        "100 --network alpha=0.002,beta=8e-10,control=0.004 --delay rank=3:8ms --fail "
        "crash=4@0.3,crash=3@" +
            std::string(second),
        folder("counted"));
    EXPECT_LT(summary["virtual_seconds"], 10);
  }
}

TEST(SimulateCommand, AJobThatGrowsKeepsItsCheckpoints) {
  const std::string out = folder("grown");
  simulate(
      "--algorithm sgp --workers 4 --steps 200 --min-ranks 1 --maths full --model linear --data "
      "glyphs:1600 --batch-size 32 --compute 0.01 --checkpoint-every 1 --checkpoint-keep all "
      "--fail join=2@0.5,join=3@0.5",
      out);
  std::ifstream rows(out + "/metrics.csv");
  std::string last;
  for (std::string row; std::getline(rows, row);) last = row;
  const int epochs = static_cast<int>(std::stod(last.substr(last.find(',') + 1)));
  EXPECT_GT(epochs, 10) << "of the two ranks that began alone it would be 8";
  for (const int epoch : {2, 9, epochs - 1})
    EXPECT_TRUE(
        std::filesystem::exists(fmt::format("{}/checkpoint/epoch-{:04d}/job.json", out, epoch)))
        << epoch;
}

TEST(SimulateCommand, TheModelsOwnGradientsLearn) {
  const std::string out = folder("simulated_full");
  const auto summary = simulate(
      "--model mlp --data glyphs:600 --workers 2 --steps 60 --batch-size 32 --compute 10ms", out);
  EXPECT_GT(summary["test_accuracy"].get<double>(), 0.2);
  EXPECT_TRUE(std::filesystem::exists(out + "/model.pt"));
}

TEST(SimulateCommand, ARunSurvivesACrashThatItsWiringAllows) {
  const auto summary = simulate(std::string(kSmall) + " --algorithm sgp --fail crash=2@0.1",
                                folder("simulated_crash"));
  EXPECT_EQ(summary["lost_ranks"], nlohmann::json({2}));
  EXPECT_EQ(summary["faults"], "crash=2@100ms");
}

// Of a cluster's profile.
TEST(SimulateCommand, VariablesThatMeanNothingHereAreLeftOut) {
  ProcessOptions options;
  options.environment = {"GRAPEVINE_TRANSPORT=tcp", "GRAPEVINE_CLUSTER=node1:7000",
                         "GRAPEVINE_PROCESSES=8", "GRAPEVINE_RESUME=auto",
                         "GRAPEVINE_METRICS_PORT=9100"};
  const auto run =
      run_process({"simulate", "--workers", "2", "--steps", "3", "--maths", "quadratic",
                   "--parameters", "100", "--out", folder("simulated_variables")},
                  options);
  EXPECT_EQ(run.exit_code, 0) << run.describe();
}

TEST(SimulateCommand, SaysWhatTheRunSaysOfItsFaults) {
  const auto run =
      run_process({"simulate", "--workers", "4", "--steps", "10", "--maths", "quadratic",
                   "--parameters", "1000", "--compute", "20ms", "--algorithm", "sgp", "--fail",
                   "crash=2@0.1", "--out", folder("simulated_warning")});
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  EXPECT_NE(run.err.find("the other ranks continue without it"), std::string::npos)
      << run.describe();
}

TEST(SimulateCommand, TraceReadsASimulatedRun) {
  const std::string out = folder("simulated_trace");
  const auto summary = simulate(std::string(kSmall) + " --algorithm ar --delay rank=1:30ms", out);
  const testing_apps::VerbRunner trace(make_trace_command);
  const auto figures = nlohmann::json::parse(trace.output(out + " --json"));
  EXPECT_EQ(figures["messages"], summary["messages_sent"]);
  const auto blame = nlohmann::json::parse(trace.output(out + " --blame all --json"));
  ASSERT_FALSE(blame["culprits"].empty());
  EXPECT_EQ(blame["culprits"][0]["kind"], "compute");
  EXPECT_EQ(blame["culprits"][0]["rank"], 1);
}

// A rank is away for 1.5 s; no step takes longer than two gradients.
TEST(SimulateCommand, TheAbsenceOfARankIsNoStep) {
  const std::string out = folder("simulated_absence");
  simulate(
      "--algorithm sgp --workers 4 --steps 60 --maths quadratic --parameters 96 --compute 50ms "
      "--fail crash=1@1,restart=1@2.5",
      out);
  const testing_apps::VerbRunner trace(make_trace_command);
  const auto slowest = nlohmann::json::parse(trace.output(out + " --blame slowest --json"));
  ASSERT_FALSE(slowest["steps"].empty()) << slowest.dump();
  EXPECT_LT(slowest["steps"][0]["seconds"].get<double>(), 1.0) << slowest["steps"][0].dump();
}

TEST(SimulateCommand, FiguresWithoutMathsHaveNoLosses) {
  const std::string out = folder("simulated_no_losses");
  const auto outcome = kVerb.run(
      "--algorithm ar --workers 2 --steps 4 --maths none --parameters 10 --out " + out, false);
  EXPECT_TRUE(outcome.result.ok());
  EXPECT_EQ(outcome.err.find("loss"), std::string::npos) << outcome.err;
  std::ifstream metrics(out + "/metrics.csv");
  std::string row;
  std::getline(metrics, row);
  int rows = 0;
  for (; std::getline(metrics, row); ++rows) {
    std::istringstream cells(row);
    std::string cell;
    for (int column = 0; column < 8; ++column) std::getline(cells, cell, ',');
    EXPECT_EQ(cell, "") << row;
  }
  EXPECT_GT(rows, 0);
}

// A change of members ends the waits for a lost rank.
TEST(SimulateCommand, TraceNamesTheLossThatRanksHaveWaitedFor) {
  const std::string out = folder("simulated_loss_waits");
  simulate(
      "--algorithm ar --workers 4 --steps 40 --maths none --parameters 1000000 --compute 50ms "
      "--network alpha=1e-4,beta=1e-9,control=0.5 --fail crash=1@1.01",
      out);
  const testing_apps::VerbRunner trace(make_trace_command);
  const std::string slowest = trace.output(out + " --blame slowest");
  EXPECT_NE(slowest.find("until rank 1 was known to be lost"), std::string::npos) << slowest;
  EXPECT_EQ(slowest.find("for a timer"), std::string::npos) << slowest;
  // The members agree a second after the crash: three ranks have waited for them.
  const auto all = nlohmann::json::parse(trace.output(out + " --blame all --json"));
  ASSERT_EQ(all["culprits"].size(), 1U) << all.dump();
  const auto& loss = all["culprits"][0];
  EXPECT_EQ(loss["kind"], "loss");
  EXPECT_EQ(loss["rank"], 1);
  EXPECT_EQ(loss["stalls"], 1);
  EXPECT_GT(loss["seconds"].get<double>(), 0.5 * 3) << all.dump();
  EXPECT_LE(loss["seconds"].get<double>(), all["waited_seconds"].get<double>());
}

// The clocks of two ranks are off in the trace: the reader aligns them, and nothing else changes.
TEST(SimulateCommand, TraceAlignsClocksThatAreOff) {
  const std::string even = folder("simulated_clocks"), off = folder("simulated_clocks_off");
  const auto first = simulate(kSmall, even);
  const auto second = simulate(std::string(kSmall) + " --fail skew=1:3s,skew=3:-250ms", off);
  EXPECT_EQ(first["trace_hash"], second["trace_hash"]);
  for (const char* process : {"process-0000", "process-0001", "process-0002"})
    EXPECT_TRUE(std::filesystem::exists(off + "/trace/" + process + ".gvtrace")) << process;
  const testing_apps::VerbRunner trace(make_trace_command);
  for (const char* question : {" --json", " --blame all --json", " --why 2:5 --json"}) {
    auto known = nlohmann::json::parse(trace.output(even + question));
    auto aligned = nlohmann::json::parse(trace.output(off + question));
    for (auto* figures : {&known, &aligned})  // the file of a rank is that of a process
      if (figures->contains("ranks"))
        for (auto& rank : (*figures)["ranks"]) rank.erase("process");
    EXPECT_EQ(known, aligned) << question;
  }
}

TEST(SimulateCommand, LossIsForGossipWithRunningSums) {
  const auto refused = kVerb.run(
      std::string(kSmall) + " --algorithm ar --network loss=0.1 --out " + folder("simulated_loss"),
      false);
  ASSERT_FALSE(refused.result.ok());
  EXPECT_NE(refused.result.error().message.find("running_sums"), std::string::npos);
  // At every level.
  const std::string levels = folder("loss_of_levels.toml");
  std::ofstream(levels) << "[[wiring.level]]\nranks = 4\nexchange = 'gossip'\n"
                           "[[wiring.level]]\nexchange = 'gossip'\nrunning_sums = true\n"
                           "overlap = true\nlocal_steps = 2\n";
  const auto inside =
      kVerb.run(levels +
                    " --workers 16 --steps 4 --maths none --parameters 1000 --network loss=0.1 "
                    "--out " +
                    folder("simulated_loss"),
                false);
  ASSERT_FALSE(inside.result.ok());
  EXPECT_NE(inside.result.error().message.find("running_sums"), std::string::npos)
      << inside.result.error().message;
  const auto summary = simulate(std::string(kSmall) +
                                    " --algorithm osgp --momentum 0 --set wiring.running_sums=true "
                                    "--network alpha=1e-3,loss=0.2",
                                folder("simulated_loss"));
  EXPECT_EQ(summary["contributions"]["produced"], 40);
}

TEST(SimulateCommand, RefusesWhatASimulationCannotMean) {
  const std::string out = " --out " + folder("simulated_refused");
  for (const char* options :
       {"--maths some",
        "--parameters 10",
        "--maths none --parameters 10",
        "--network x=1",
        "--compute slow",
        "--fail crash=9@1",
        "--fail restart=1@1",
        "--algorithm gem --set wiring.hierarchy=2 --fail crash=1@1,restart=1@2",
        "--resume x",
        "--transport tcp",
        "--cluster h:1",
        "--seeds 3..1",
        "--seeds x",
        "--algorithm ar --steps 4 --parameters 99 --maths none --set wiring.bucket_bytes=64",
        "--network alpha=1e12",
        "--steps 4 --parameters 999999 --maths none --network beta=1e5",
        "--network alpha",
        "--tls x",
        "--join a:1",
        "--control 127.0.0.1:0",
        "--tensorboard",
        "--twice",
        "--jobs 2",
        "--steps 4 --parameters 99 --maths quadratic --init nosuchfile"}) {
    const auto outcome = kVerb.run(std::string(options) + out, false);
    ASSERT_FALSE(outcome.result.ok()) << options;
    EXPECT_EQ(outcome.result.error().code, Errc::bad_input) << options;
  }
}

TEST(SimulateCommand, ItsJobFileStatesNoVariableThatWasLeftOut) {
  const std::string out = folder("simulated_profile");
  ProcessOptions profile;
  profile.environment = {"GRAPEVINE_TLS=certificates", "GRAPEVINE_TENSORBOARD=true"};
  const ProcessResult run = run_process({"simulate", "--workers", "2", "--steps", "2", "--maths",
                                         "none", "--parameters", "99", "--out", out},
                                        profile);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const ProcessResult again =
      run_process({"simulate", out + "/job.toml", "--out", folder("simulated_again")});
  EXPECT_EQ(again.exit_code, 0) << again.err;
}

ProcessResult campaign(const std::vector<std::string>& more) {
  return run_process(with({"simulate", "--workers", "4", "--steps", "10", "--maths", "quadratic",
                           "--parameters", "64", "--compute", "lognormal=-4:0.5", "--network",
                           "alpha=1e-3,beta=1e-6,jitter=1e-3", "--jobs", "2"},
                          more));
}

TEST(SimulateCommand, ACrashedRankRestarts) {
  const auto summary = simulate(
      std::string(kSmall) + " --algorithm sgp --fail crash=2@60ms,restart=2@90ms --compute 0.01",
      folder("simulated_restart"));
  EXPECT_TRUE(summary["lost_ranks"].empty()) << summary.dump();
  EXPECT_EQ(summary["views"], 3) << summary.dump();
}

TEST(SimulateCommand, ACampaignRunsEachSeed) {
  const ProcessResult result = campaign(
      {"--algorithm", "sgp", "--seeds", "1..6", "--twice", "--fail", "random=3", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const auto report = nlohmann::json::parse(ProcessResult::last_line(result.out));
  EXPECT_EQ(report["seeds"], 6);
  EXPECT_EQ(report["failed"], 0);
}

TEST(SimulateCommand, ACampaignWritesATableOfItsSeeds) {
  const std::string out = folder("campaign_table");
  const std::vector<std::string> options = {"--algorithm", "sgp",          "--seeds", "4..6",
                                            "--fail",      "crash=1@20ms", "--out",   out};
  const ProcessResult result = campaign(options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  std::ifstream table(out + "/seeds.csv");
  std::string line;
  ASSERT_TRUE(std::getline(table, line));
  EXPECT_EQ(line, "seed,failed,events,virtual_seconds,trace_hash,faults,violations");
  for (const char* start : {"4,0,", "5,0,", "6,0,"}) {
    ASSERT_TRUE(std::getline(table, line));
    EXPECT_EQ(line.rfind(start, 0), 0U) << line;
    EXPECT_NE(line.find("crash=1@"), std::string::npos) << line;
  }
  EXPECT_FALSE(std::getline(table, line)) << line;
  std::ifstream figures(out + "/campaign.json");
  EXPECT_EQ(nlohmann::json::parse(figures).at("seeds"), 3);

  const ProcessResult again = campaign(options);
  EXPECT_EQ(again.exit_code, 2) << again.describe();
  EXPECT_NE(again.err.find("has files"), std::string::npos) << again.describe();

  std::vector<std::string> others = with(options, {"--overwrite"});
  *std::find(others.begin(), others.end(), "4..6") = "7..7";
  const ProcessResult replaced = campaign(others);
  EXPECT_EQ(replaced.exit_code, 0) << replaced.describe();
  std::ifstream new_table(out + "/seeds.csv");
  std::getline(new_table, line);
  ASSERT_TRUE(std::getline(new_table, line));
  EXPECT_EQ(line.rfind("7,0,", 0), 0U) << line;
  EXPECT_FALSE(std::getline(new_table, line)) << line;
}

// A deadline that a pause exceeds, and a disk without room for the table.
TEST(SimulateCommand, FailedSeedsAreTheErrorOfACampaignAlsoWhereItsFilesCannotBeWritten) {
  const std::string out = folder("campaign_failed");
  const std::vector<std::string> options = {"--algorithm", "ar",  "--seeds",    "3..3",
                                            "--deadline",  "0.8", "--fail",     "pause=2@50ms+1s",
                                            "--out",       out,   "--overwrite"};
  ProcessResult result;
  {
    const FileSizeLimit limit(100);
    result = campaign(options);
  }
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_EQ(ProcessResult::last_line(result.err).rfind("error: 1 of 1 seeds failed", 0), 0U)
      << result.describe();
  EXPECT_NE(result.err.find("seeds.csv': File too large"), std::string::npos) << result.describe();
  EXPECT_FALSE(std::filesystem::exists(out + "/seeds.csv"));

  result = campaign(options);
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  // The command that repeats the seed writes no files.
  const auto command = result.err.find("grapevine simulate ");
  ASSERT_NE(command, std::string::npos) << result.describe();
  const std::string line = result.err.substr(command, result.err.find('\n', command) - command);
  EXPECT_NE(line.find("--seeds 3..3"), std::string::npos) << line;
  for (const char* option : {"--out", "--overwrite"})
    EXPECT_EQ(line.find(option), std::string::npos) << line;
  std::ifstream table(out + "/seeds.csv");
  std::string row;
  std::getline(table, row);
  ASSERT_TRUE(std::getline(table, row));
  EXPECT_EQ(row.rfind("3,1,", 0), 0U) << row;
  EXPECT_NE(row.find(",\"pause=2@50ms+1s\",\"liveness: "), std::string::npos) << row;
}

// --minimize alone writes no files; `out` of a job file and a variable, as of a cluster's profile,
// are left out.
TEST(SimulateCommand, FoldersOfRunsAreNotThoseOfCampaigns) {
  const std::string options = "--minimize --workers 2 --steps 3 --maths none --parameters 99";
  const auto refused = kVerb.run(options + " --out " + folder("minimized"), false);
  ASSERT_FALSE(refused.result.ok());
  EXPECT_EQ(refused.result.error().code, Errc::bad_input);
  EXPECT_NE(refused.result.error().message.find("does not go with --minimize"), std::string::npos)
      << refused.result.error().message;
  const std::string job = folder("minimized.toml");
  std::ofstream(job) << "out = \"" << folder("minimized") << "\"\n";
  const std::vector<std::string> of_file = {
      "simulate", job,       "--minimize", "--workers",    "2", "--steps",
      "3",        "--maths", "none",       "--parameters", "99"};
  const ProcessResult shrunk = run_process(of_file);
  EXPECT_EQ(shrunk.exit_code, 0) << shrunk.describe();
  EXPECT_FALSE(std::filesystem::exists(folder_of("minimized")));
  std::vector<std::string> with_seeds = of_file;
  with_seeds.insert(with_seeds.end(), {"--seeds", "1..1"});
  const ProcessResult campaign_of_file = run_process(with_seeds);
  EXPECT_EQ(campaign_of_file.exit_code, 0) << campaign_of_file.describe();
  EXPECT_TRUE(std::filesystem::exists(folder_of("minimized") / "seeds.csv"));
  ProcessOptions profile;
  profile.environment = {"GRAPEVINE_OUT=" + folder("minimized")};
  const ProcessResult alone = run_process({"simulate", "--minimize", "--workers", "2", "--steps",
                                           "3", "--maths", "none", "--parameters", "99"},
                                          profile);
  EXPECT_EQ(alone.exit_code, 0) << alone.describe();
  const ProcessResult seeds = run_process({"simulate", "--seeds", "1..2", "--workers", "2",
                                           "--steps", "3", "--maths", "none", "--parameters", "99"},
                                          profile);
  EXPECT_EQ(seeds.exit_code, 0) << seeds.describe();
  EXPECT_FALSE(std::filesystem::exists(folder("minimized")));
}

// A deadline that a pause of a second exceeds, and no other fault.
TEST(SimulateCommand, AFailureIsShrunkToItsFaultsAndRepeatedByItsCommand) {
  const ProcessResult result =
      campaign({"--algorithm", "ar", "--seeds", "3..3", "--minimize", "--deadline", "0.8", "--fail",
                "slow=0-1x2@0+10ms,pause=1@20ms+5ms,pause=2@50ms+1s,partition=0-3@10ms+5ms,slow=1-"
                "2x3@0+1ms,crash=3@40ms,restart=3@60ms"});
  ASSERT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_NE(result.err.find("liveness"), std::string::npos) << result.describe();
  EXPECT_NE(result.err.find("--seeds 3..3 --fail pause=2@50ms+1s\n"), std::string::npos)
      << result.describe();
  // The printed command fails in the same way.
  const auto violation_of = [](const ProcessResult& run) {
    const auto at = run.err.find("liveness: ");
    return at == std::string::npos ? "none" : run.err.substr(at, run.err.find('\n', at) - at);
  };
  const auto begin = result.err.find("grapevine simulate ");
  ASSERT_NE(begin, std::string::npos) << result.describe();
  std::istringstream words(
      result.err.substr(begin, result.err.find('\n', begin) - begin).substr(sizeof "grapevine"));
  const std::vector<std::string> command{std::istream_iterator<std::string>(words), {}};
  const ProcessResult again = run_process(command);
  EXPECT_EQ(again.exit_code, 1) << again.describe();
  EXPECT_EQ(violation_of(again), violation_of(result));
}

}  // namespace simulate_command_test
}  // namespace grapevine
