// Hostfiles, ranks on hosts, and command lines that survive two shells.
#include "apps/launch/launch_plan.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "messages/text/shell_quoted.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace launch_plan_test {

TEST(LaunchPlan, ReadsHostfiles) {
  const auto hosts = parse_hostfile(
      "# the cluster\n\nnode1 slots=4\n  user@node2\tslots=2  # two only\r\n10.0.0.3\nfe80::1\n",
      "f");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  ASSERT_EQ(hosts->size(), 4u);
  EXPECT_EQ((*hosts)[0].name, "node1");
  EXPECT_EQ((*hosts)[0].slots, 4);
  EXPECT_EQ((*hosts)[1].name, "user@node2");
  EXPECT_EQ((*hosts)[1].slots, 2);
  EXPECT_EQ((*hosts)[2].slots, 1);
  EXPECT_EQ((*hosts)[3].name, "fe80::1");
}

TEST(LaunchPlan, RefusesOtherHostfilesWithFileAndLine) {
  for (const std::string line :
       {"node slots=0", "node slots=-1", "node slots=", "node slots=x", "node slots=2x",
        "node slots = 2", "node 2", "node max_slots=2", "node slots=2 slots=2", "-oProxyCommand=x",
        "a;b", "node slots=99999999999", "first", "node:2", "node:2 slots=2", "node:"}) {
    const auto hosts = parse_hostfile("first slots=1\n" + line + "\n", "dir/hosts");
    ASSERT_FALSE(hosts.ok()) << line;
    EXPECT_EQ(hosts.error().code, Errc::bad_input);
    EXPECT_EQ(hosts.error().message.rfind("dir/hosts:2: ", 0), 0u) << hosts.error().message;
  }
  EXPECT_FALSE(parse_hostfile("# nothing\n", "f").ok());
}

TEST(LaunchPlan, HostsWithACountAfterAColonAreToldTheLine) {
  const auto hosts = parse_hostfile("user@node1:4\n", "hosts");
  ASSERT_FALSE(hosts.ok());
  EXPECT_NE(hosts.error().message.find("write 'user@node1 slots=4'"), std::string::npos)
      << hosts.error().message;
}

// Every rank has one place; ranks of a host are neighbours, and no host has more than its slots.
TEST(LaunchPlan, PlacesEveryRankOnceWithinTheSlots) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE("seed 7, round " + std::to_string(round));
    std::vector<HostSlots> hosts;
    std::int32_t slots = 0;
    for (std::uint32_t i = 0; i <= random() % 5; ++i) {
      hosts.push_back({"host" + std::to_string(i), static_cast<std::int32_t>(1 + random() % 6)});
      slots += hosts.back().slots;
    }
    const auto ranks = static_cast<std::int32_t>(1 + random() % static_cast<std::uint32_t>(slots));
    const auto placed = place_ranks(hosts, ranks, "host1");
    ASSERT_TRUE(placed.ok());
    ASSERT_EQ(placed->size(), static_cast<std::size_t>(ranks));
    std::set<std::pair<std::string, std::int32_t>> places;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const LaunchPlace& p = (*placed)[static_cast<std::size_t>(rank)];
      EXPECT_EQ(p.rank, rank);
      EXPECT_EQ(p.ranks, ranks);
      EXPECT_EQ(p.here, p.host == "host1");
      EXPECT_GE(p.local_rank, 0);
      EXPECT_LT(p.local_rank, p.local_ranks);
      EXPECT_LE(p.local_ranks, hosts[static_cast<std::size_t>(p.host.back() - '0')].slots);
      places.emplace(p.host, p.local_rank);
    }
    EXPECT_EQ(places.size(), static_cast<std::size_t>(ranks));
    EXPECT_FALSE(place_ranks(hosts, slots + 1, "host1").ok());
  }
}

// Its GPUs and cores are dealt by the local rank.
TEST(LaunchPlan, ThisMachineIsOneByAllItsNames) {
  const auto placed = place_ranks({{"localhost", 2}, {"other", 1}, {"host1", 2}}, 5, "host1");
  ASSERT_TRUE(placed.ok());
  std::vector<std::pair<std::int32_t, std::int32_t>> local;
  for (const LaunchPlace& place : *placed) local.emplace_back(place.local_rank, place.local_ranks);
  EXPECT_EQ(local, (std::vector<std::pair<std::int32_t, std::int32_t>>{
                       {0, 4}, {1, 4}, {0, 1}, {2, 4}, {3, 4}}));
}

TEST(LaunchPlan, TheHeadIsFoundByAll) {
  const auto head = [](const std::vector<HostSlots>& hosts, std::int32_t ranks) {
    return head_host(*place_ranks(hosts, ranks, "me.site"), "me.site");
  };
  EXPECT_EQ(head({{"localhost", 2}}, 2), "127.0.0.1");
  EXPECT_EQ(head({{"me", 2}, {"other", 2}}, 2), "127.0.0.1");
  EXPECT_EQ(head({{"localhost", 2}, {"other", 2}}, 3), "me.site");
  EXPECT_EQ(head({{"user@other", 2}, {"me", 2}}, 4), "other");
}

// Through the login shell of a host and the shell that it starts there.
TEST(LaunchPlan, QuotedWordsPassTwoShells) {
  const std::string characters = " '\"\\$`\n\t*?[]{}()<>|&;#~!-=abcü";
  std::mt19937 random(11);
  std::string command = "printf '%s|'";
  std::string wanted;
  for (int word = 0; word < 200; ++word) {
    std::string text;
    for (std::uint32_t left = random() % 8; left > 0; --left)
      text += characters[random() % characters.size()];
    command += " " + shell_quoted(text);
    wanted += text + "|";
  }
  ProcessOptions shell;
  shell.program = "/bin/sh";
  const ProcessResult result = run_process({"-c", "sh -c " + shell_quoted(command)}, shell);
  EXPECT_EQ(result.out, wanted) << "seed 11\n" << result.describe();
}

TEST(LaunchPlan, SshGetsItsOptionsTheHostAndOneCommand) {
  const auto command = ssh_command({"ssh", "-p", "22"}, "host", "/a b", {"A=1"}, {"prog", "x y"});
  ASSERT_EQ(command.size(), 5u);
  EXPECT_EQ(command[0], "ssh");
  EXPECT_EQ(command[3], "host");
  for (const std::string part : {"/a b", "A=1", "prog", "x y"})
    EXPECT_NE(command[4].find(part), std::string::npos) << part;
}

TEST(LaunchPlan, FindsAndTakesOutOptions) {
  const std::vector<std::string> arguments = {"train", "--out",   "a",          "--resume",
                                              "x",     "--out=b", "--resume=y", "--json"};
  EXPECT_EQ(option_value(arguments, "out"), "b");
  EXPECT_EQ(option_value(arguments, "steps"), std::nullopt);
  EXPECT_EQ(without_option(arguments, "resume"),
            (std::vector<std::string>{"train", "--out", "a", "--out=b", "--json"}));
}

TEST(LaunchPlan, KnowsProcessesThatJoinTheRunOfAnotherJob) {
  struct Case {
    std::vector<std::string> verb;
    const char* variable;
    bool joins;
  };
  for (const Case& one : std::vector<Case>{{{"train"}, nullptr, false},
                                           {{"train", "--steps", "2"}, "", false},
                                           {{"train", "--join", "a:1"}, nullptr, true},
                                           {{"train", "--join=a:1"}, nullptr, true},
                                           {{"train"}, "a:1", true},
                                           {{"bench"}, "a:1", false},
                                           {{"node", "--join", "a:1"}, nullptr, false}})
    EXPECT_EQ(joins_a_run(one.verb, one.variable), one.joins) << one.verb.back();
}

}  // namespace launch_plan_test
}  // namespace grapevine
