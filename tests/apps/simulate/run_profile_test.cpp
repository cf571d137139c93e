// A simulated run, whose network and times are known, in the place of a recorded one.
#include "apps/simulate/run_profile.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "apps/simulate/advise_command.hpp"
#include "apps/simulate/simulate_command.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"
#include "tests/apps/verb_runner.hpp"

namespace grapevine {
namespace run_profile_test {

const testing_apps::VerbRunner kSimulate(make_simulate_command);
const testing_apps::VerbRunner kAdvise(make_advise_command);

std::string folder(const std::string& name) {
  const auto path = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove_all(path);
  return path.string();
}

nlohmann::json simulate(const std::string& options, const std::string& out) {
  const auto outcome = kSimulate.run(options + " --json --out " + out, false);
  EXPECT_TRUE(outcome.result.ok()) << options << ": " << outcome.result.error().message;
  return nlohmann::json::parse(ProcessResult::last_line(outcome.out));
}

double step_of(const nlohmann::json& summary) {
  return summary["step_seconds"]["mean"].get<double>();
}

TEST(LinkFit, FindsTheLineUnderMessagesThatWaited) {
  constexpr double kAlpha = 1e-4, kBeta = 8e-9;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Rng rng(seed);
    LinkFit fit;
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t bytes = i % 3 == 0 ? 164 : i % 3 == 1 ? 1'000'000 : 30'000'000;
      const double line = kAlpha + kBeta * static_cast<double>(bytes);
      const double waited = rng() % 2 == 0 ? line * static_cast<double>(rng() % 100) / 50 : 0;
      fit.add(bytes, line + waited);
    }
    const auto found = fit.fit();
    EXPECT_NEAR(found.link.alpha / kAlpha, 1, 0.05) << "seed " << seed;
    EXPECT_NEAR(found.link.beta / kBeta, 1, 0.05) << "seed " << seed;
    EXPECT_EQ(found.sizes, 3);
  }
}

// Of which some are a few bytes longer.
LinkFit of_one_size() {
  LinkFit fit;
  for (int i = 0; i < 100; ++i) fit.add(1020 + 8 * (i % 2), 2e-3);
  return fit;
}

TEST(LinkFit, AssumesTheUsualAlphaOfOneSize) {
  const auto found = of_one_size().fit();
  EXPECT_EQ(found.sizes, 1);
  EXPECT_EQ(found.split, LinkFit::Split::assumed);
  EXPECT_EQ(found.link.alpha, LinkFit::kUsualAlpha);
  EXPECT_NEAR(found.link.alpha + 1024 * found.link.beta, 2e-3, 1e-9);
  EXPECT_NE(found.note().find("assumed"), std::string::npos) << found.note();
  EXPECT_EQ(LinkFit().fit().messages, 0);
  LinkFit fast;
  for (int i = 0; i < 100; ++i) fast.add(1000, 1e-5);
  EXPECT_NEAR(fast.fit().link.alpha, 5e-6, 1e-12) << "no more than half of the time";
}

TEST(LinkFit, DividesOneSizeByAFewSmallMessages) {
  LinkFit fit = of_one_size();
  for (const double waited : {1e-3, 0.0, 2e-4}) fit.add(64, 5e-4 + 64e-6 + waited);
  for (int i = 0; i < 20; ++i) fit.add_gap(1024, 1e-3);  // tells less than they do
  const auto found = fit.fit();
  EXPECT_EQ(found.split, LinkFit::Split::small);
  EXPECT_EQ(found.split_by, 3);
  EXPECT_NEAR(found.link.alpha, 4.68e-4, 1e-5);
  EXPECT_NEAR(found.link.alpha + 1024 * found.link.beta, 2e-3, 1e-8);
}

TEST(LinkFit, DividesOneSizeByMessagesThatLeaveOneAfterTheOther) {
  LinkFit fit = of_one_size();
  for (int i = 0; i < 20; ++i) fit.add_gap(1024, i % 5 == 0 ? 3e-3 : 1.5e-3);
  const auto found = fit.fit();
  EXPECT_EQ(found.split, LinkFit::Split::gaps);
  EXPECT_NEAR(found.link.alpha, 5e-4, 1e-8);
  EXPECT_NEAR(found.link.beta * 1024, 1.5e-3, 1e-8);
  // Streams that share the bandwidth arrive together, and tell nothing.
  LinkFit shared = of_one_size();
  for (int i = 0; i < 20; ++i) shared.add_gap(1024, 1e-5);
  EXPECT_EQ(shared.fit().split, LinkFit::Split::assumed);
}

constexpr char kRecorded[] =
    "--algorithm ar --workers 4 --steps 40 --maths none --parameters 1000000 --network "
    "alpha=1e-4,beta=8e-9 --compute 0.05 --delay rotate=0ms..30ms";

// Around a ring a rank sends one message at a time.
std::string recorded_ring() { return std::string(kRecorded) + " --set wiring.all_reduce=ring"; }

TEST(RunProfile, MeasuresTheNetworkAndTheTimesOfGradients) {
  const std::string run = folder("profile_recorded");
  simulate(recorded_ring(), run);
  std::ostringstream out, err;
  Console console{out, err};
  const auto profile = read_profile(run, console);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->workers, 4);
  EXPECT_EQ(profile->parameters, 1'000'000);
  EXPECT_EQ(profile->steps, 40);
  EXPECT_NEAR(profile->mean_gradient(), 0.065, 0.002);
  // All slices have one size; a straggler sends its own and those that it has by then at once.
  EXPECT_EQ(profile->links.split, LinkFit::Split::gaps) << profile->links.note();
  EXPECT_NEAR(profile->links.link.beta / 8e-9, 1, 0.01);
  EXPECT_NEAR(profile->links.link.alpha / 1e-4, 1, 0.1);
  const DelayModel::Term time = profile->compute_time();
  EXPECT_NEAR(to_seconds(time(0, 0)), to_seconds(time(0, 4)), 1e-6) << "delays rotate over 4 ranks";
  EXPECT_GT(std::abs(to_seconds(time(0, 0)) - to_seconds(time(1, 0))), 5e-3);
}

// Two peers in each round: the second message waits for the first one in the NIC.
TEST(RunProfile, TellsAlphaFromBetaWhereMessagesOfOneSizeLeaveTogether) {
  constexpr double kAlpha = 4e-3, kBeta = 8e-9;
  const std::string run = folder("profile_bursts");
  simulate(
      "--algorithm sgp --set wiring.peers=2 --workers 8 --steps 40 --maths none "
      "--parameters 1000000 --network alpha=4e-3,beta=8e-9 --compute 0.05",
      run);
  std::ostringstream out, err;
  Console console{out, err};
  const auto profile = read_profile(run, console);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->links.split, LinkFit::Split::gaps) << profile->links.note();
  EXPECT_NEAR(profile->links.link.beta / kBeta, 1, 0.02);
  EXPECT_NEAR(profile->links.link.alpha / kAlpha, 1, 0.05);
}

TEST(RunProfile, SaysWhatIsAssumedOfTheNetwork) {
  const std::string run = folder("profile_assumed");
  // Without stragglers a rank of a ring sends one message at a time.
  simulate(
      "--algorithm ar --set wiring.all_reduce=ring --workers 4 --steps 40 --maths none "
      "--parameters 1000000 --network alpha=1e-4,beta=8e-9 --compute 0.05",
      run);
  const auto outcome =
      kSimulate.run("--from-trace " + run + " --json --out " + folder("profile_note"), false);
  ASSERT_TRUE(outcome.result.ok()) << outcome.result.error().message;
  const auto summary = nlohmann::json::parse(ProcessResult::last_line(outcome.out));
  const auto note = summary.value("network_note", std::string());
  EXPECT_NE(note.find("alpha 25µs of it is assumed"), std::string::npos) << note;
  EXPECT_NE(outcome.err.find(note), std::string::npos) << outcome.err;
  const auto given =
      simulate("--from-trace " + run + " --network alpha=1e-4,beta=8e-9", folder("profile_given"));
  EXPECT_FALSE(given.contains("network_note"));
}

// What is predicted from the record of one wiring is what a run of the other takes.
TEST(RunProfile, PredictsOtherWirings) {
  const std::string run = folder("profile_basis");
  simulate(recorded_ring(), run);
  for (const char* wiring : {"ar", "osgp", "gtopk", "d-psgd"}) {
    const std::string other = std::string(kRecorded) + " --algorithm " + wiring;
    const double real = step_of(simulate(other, folder("profile_real")));
    const double predicted = step_of(
        simulate("--from-trace " + run + " --algorithm " + wiring, folder("profile_predicted")));
    EXPECT_NEAR(predicted / real, 1, 0.06) << wiring;
  }
}

constexpr char kEight[] =
    "--workers 8 --steps 40 --maths none --parameters 500000 --compute 0.05 --network ";

// Two peers in each round: half of the messages wait behind their twin, which is no jitter.
TEST(RunProfile, WaitingInANicIsNoJitter) {
  const std::string run = folder("profile_twins");
  const std::string network = "alpha=1e-3,beta=8e-9";
  const double own = step_of(simulate(kEight + network + " --algorithm d-psgd", run));
  std::ostringstream out, err;
  Console console{out, err};
  const auto profile = read_profile(run, console);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_LT(profile->links.jitter, 1e-4);
  EXPECT_NEAR(profile->links.link.alpha / 1e-3, 1, 0.1);
  EXPECT_NEAR(profile->links.link.beta / 8e-9, 1, 0.02);
  const std::string from = "--from-trace " + run + " --algorithm ";
  EXPECT_NEAR(step_of(simulate(from + "d-psgd", folder("profile_twins_own"))) / own, 1, 0.05);
  const double ar = step_of(simulate(kEight + network + " --algorithm ar", folder("profile_ar")));
  EXPECT_NEAR(step_of(simulate(from + "ar", folder("profile_twins_ar"))) / ar, 1, 0.05);
}

// Links inside a node are other links.
TEST(RunProfile, TellsLinksInsideANodeFromThoseBetweenNodes) {
  const std::string network = "node=2,node-alpha=1e-6,node-beta=1e-10,alpha=1e-4,beta=8e-9";
  for (const char* wiring : {"ar", "eager-majority", "d-psgd"}) {
    const std::string run = folder("profile_nodes");
    const double own = step_of(simulate(kEight + network + " --algorithm " + wiring, run));
    const auto summary =
        simulate("--from-trace " + run + " --algorithm " + wiring, folder("profile_nodes_own"));
    EXPECT_NEAR(step_of(summary) / own, 1, 0.06) << wiring << ": " << summary["network"];
    EXPECT_NE(summary["network"].get<std::string>().find("node=2"), std::string::npos) << wiring;
    EXPECT_NE(summary["network_note"].get<std::string>().find("nodes of 2 ranks"),
              std::string::npos);
  }
}

RunProfile profile_of(const std::string& run) {
  std::ostringstream out, err;
  Console console{out, err};
  auto profile = read_profile(run, console);
  EXPECT_TRUE(profile.ok()) << profile.error().message;
  return profile ? *std::move(profile) : RunProfile{};
}

constexpr char kSteady[] = "--workers 4 --maths none --parameters 1000 --compute 0.05 ";

TEST(RunProfile, RefusesATraceOfSomeSteps) {
  const std::string run = folder("profile_sampled");
  simulate(kSteady + std::string("--algorithm ar --steps 40 --trace-sample 10"), run);
  for (const auto& outcome :
       {kSimulate.run("--from-trace " + run, false), kAdvise.run(run, false)}) {
    ASSERT_FALSE(outcome.result.ok());
    EXPECT_NE(outcome.result.error().message.find("--trace-sample"), std::string::npos)
        << outcome.result.error().message;
  }
}

// A step takes 50 ms, and the rank is away for 1.5 s.
TEST(RunProfile, TheAbsenceOfARankIsNoWork) {
  const std::string run = folder("profile_absent");
  simulate(kSteady + std::string("--algorithm sgp --steps 60 --fail crash=1@1,restart=1@2.5"), run);
  const RunProfile profile = profile_of(run);
  EXPECT_LT(profile.overhead, 1e-3);
  EXPECT_NEAR(profile.mean_gradient(), 0.05, 2e-3);
}

TEST(RunProfile, TheBatchSizeIsThatOfTheRun) {
  const std::string run = folder("profile_batch");
  simulate(kSteady + std::string("--algorithm sgp --batch-size 32 --steps 60 --fail crash=1@0.2"),
           run);
  EXPECT_EQ(profile_of(run).batch_size, 32);
}

TEST(RunProfile, RefusesAFolderWithoutARun) {
  const auto outcome = kSimulate.run("--from-trace " + folder("profile_none"), false);
  ASSERT_FALSE(outcome.result.ok());
  EXPECT_EQ(outcome.result.error().code, Errc::bad_input);
}

// The exchange that ends a run would count beside those of its periods.
TEST(AdviseCommand, CountsWholePeriodsOfLocalSteps) {
  const std::string run = folder("advise_periods");
  simulate(recorded_ring(), run);
  const auto bytes = [&run](const std::string& steps) {
    std::map<std::string, double> of;
    const auto advice =
        nlohmann::json::parse(kAdvise.output(run + " --steps " + steps + " --json"));
    for (const auto& wiring : advice["wirings"])
      if (wiring["set"].empty()) of[wiring["algorithm"]] = wiring["bytes_per_step"].get<double>();
    return of;
  };
  auto few = bytes("12"), many = bytes("300");
  for (const char* algorithm : {"local-sgd", "diloco", "sparseloco", "noloco"})
    EXPECT_NEAR(few[algorithm] / many[algorithm], 1, 0.02) << algorithm;
}

TEST(AdviseCommand, PrintsTheNetworkThatItCounts) {
  const std::string run = folder("advise_network");
  simulate(kSteady + std::string("--algorithm ar --steps 10"), run);
  const auto advice = nlohmann::json::parse(
      kAdvise.output(run + " --steps 4 --network alpha=0.1,beta=1e-6 --json"));
  EXPECT_EQ(advice["network"], "alpha=0.1,beta=1e-6");
}

TEST(AdviseCommand, RefusesANegativeNumberOfWorkers) {
  const auto outcome = kAdvise.run("x --workers -3", false);
  ASSERT_FALSE(outcome.result.ok());
  EXPECT_NE(outcome.result.error().message.find("--workers -3"), std::string::npos);
}

TEST(AdviseCommand, RefusesANetworkThatItCannotRead) {
  const auto outcome = kAdvise.run("x --network foo", false);
  ASSERT_FALSE(outcome.result.ok());
  const std::string& message = outcome.result.error().message;
  EXPECT_EQ(message.rfind("unknown --network term 'foo'", 0), 0U) << message;
}

TEST(AdviseCommand, NamesNoWiringTwice) {
  const std::string run = folder("advise_distinct");
  simulate(recorded_ring(), run);
  const auto advice = nlohmann::json::parse(kAdvise.output(run + " --steps 4 --json"));
  for (const auto& wiring : advice["wirings"])
    EXPECT_NE(wiring["set"], nlohmann::json({"wiring.local_steps=8"}))
        << "local-sgd has these already";
}

TEST(AdviseCommand, RanksTheWiringsByTheirPredictedStep) {
  const std::string run = folder("advise_basis");
  simulate(recorded_ring(), run);
  const auto advice = nlohmann::json::parse(kAdvise.output(run + " --steps 12 --json"));
  const auto& wirings = advice["wirings"];
  ASSERT_GT(wirings.size(), 10u);
  std::map<std::string, double> plain;
  for (std::size_t i = 0; i < wirings.size(); ++i) {
    if (i > 0) {
      EXPECT_GE(wirings[i]["step_seconds"], wirings[i - 1]["step_seconds"]);
    }
    EXPECT_GT(wirings[i]["bytes_per_step"], 0.0);
    if (wirings[i]["set"].empty())
      plain[wirings[i]["algorithm"]] = wirings[i]["step_seconds"].get<double>();
  }
  EXPECT_LT(plain["osgp"], plain["sgp"]) << "the exchange of osgp is beside the gradient";
  EXPECT_LT(plain["gtopk"], plain["ar"]);
  EXPECT_FALSE(advice["assumptions"].empty());
  const std::string text = kAdvise.output(run + " --steps 12");
  EXPECT_NE(text.find("assumed:"), std::string::npos);
}

}  // namespace run_profile_test
}  // namespace grapevine
