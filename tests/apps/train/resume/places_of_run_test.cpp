// How many processes the run has places for that a job of nodes continues.
#include "apps/train/resume/places_of_run.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/apps/process.hpp"

namespace grapevine {
namespace places_of_run_test {

class PlacesOfRun : public testing::Test {
 protected:
  // A run whose job file has these lines.
  std::string run(const std::string& name, const std::string& lines) const {
    const auto run = folder_.path() / name;
    std::filesystem::create_directories(run / "checkpoint");
    std::ofstream(run / "job.toml") << "# Grapevine 0.1.0: the resolved job of a run.\n" << lines;
    return run.string();
  }

  const TemporaryDirectory folder_;
};

TEST_F(PlacesOfRun, AreItsMostRanksDividedByThoseOfAProcess) {
  const std::string six = run("six", "workers = 2\nmax-ranks = 6\n");
  EXPECT_EQ(places_of_run({"--resume=" + six}), 3);
  EXPECT_EQ(places_of_run({"--lr=0.1", "--resume=" + six, "--workers=1"}), 6);
  EXPECT_EQ(places_of_run({"--resume=" + six, "--workers=7"}), 0);
  EXPECT_EQ(places_of_run({"--resume=" + run("one each", "max-ranks = 5\n")}), 5);
}

TEST_F(PlacesOfRun, ARunWithoutAMostOfRanksHasAnyNumber) {
  EXPECT_EQ(places_of_run({"--resume=" + run("any", "workers = 1\nmax-ranks = 0\n")}), 0);
  EXPECT_EQ(places_of_run({"--resume=" + run("older", "workers = 1\n")}), 0);
  EXPECT_EQ(places_of_run({}), 0);
  EXPECT_EQ(places_of_run({"--resume=auto", "--out=" + (folder_.path() / "new").string()}), 0);
}

// Process 0 says what is wrong with it.
TEST_F(PlacesOfRun, WhatIsNoJobFileSaysNothing) {
  EXPECT_EQ(places_of_run({"--resume=" + (folder_.path() / "nowhere").string()}), 0);
  EXPECT_EQ(places_of_run({"--resume=" + run("damaged", "max-ranks = \n")}), 0);
  EXPECT_EQ(places_of_run({"--resume=" + run("text", "max-ranks = \"many\"\n")}), 0);
  EXPECT_EQ(places_of_run({"--resume=" + run("zero", "workers = 0\nmax-ranks = 4\n")}), 0);
}

}  // namespace places_of_run_test
}  // namespace grapevine
