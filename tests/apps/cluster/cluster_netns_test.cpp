// A run over three network namespaces joined by slow links: what separate machines would see.
#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "net/ucx/ucx.hpp"
#include "tests/apps/cluster/network.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace cluster_netns_test {

class SlowLinks : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "not root: network namespaces cannot be made";
    if (GetParam() == "ucx" && !ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
    network_ = std::make_unique<Network>();
    if (!network_->good()) GTEST_SKIP() << "no network namespaces, bridges or tbf here";
  }

  std::vector<std::string> arguments(const std::string& algorithm,
                                     const std::filesystem::path& out) const {
    return {"train",   "--algorithm", algorithm,    "--model",   "mlp",
            "--data",  "glyphs:1200", "--steps",    "8",         "--batch-size",
            "8",       "--out",       out.string(), "--threads", "1",
            "--trace", "off",         "--validate", "end"};
  }

  Process start(int host, std::vector<std::string> grapevine) const {
    grapevine.insert(grapevine.end(), {"--transport", GetParam()});
    return network_->start(host, std::move(grapevine));
  }

  TemporaryDirectory folder_;
  std::unique_ptr<Network> network_;
};

TEST_P(SlowLinks, TrainsWithTheSameBitsAsOneProcess) {
  for (const std::string algorithm : {"ar", "sgp"}) {
    SCOPED_TRACE(algorithm);
    const auto one = folder_.path() / (algorithm + "-one"), many = folder_.path() / algorithm;
    auto alone_arguments = arguments(algorithm, one);
    alone_arguments.insert(alone_arguments.end(), {"--workers", std::to_string(kHosts)});
    const auto alone = run_process(alone_arguments);
    ASSERT_EQ(alone.exit_code, 0) << alone.describe();
    std::vector<std::unique_ptr<Process>> processes;
    for (int host = 0; host < kHosts; ++host)
      processes.emplace_back(new Process(start(host, arguments(algorithm, many))));
    for (const auto& process : processes) {
      const auto result = process->wait();
      ASSERT_EQ(result.exit_code, 0) << result.describe();
    }
    const auto expected = read_checkpoint(one.string()), found = read_checkpoint(many.string());
    ASSERT_TRUE(expected.ok() && found.ok());
    for (std::size_t rank = 0; rank < kHosts; ++rank)
      EXPECT_TRUE(at::equal(*expected->ranks[rank].tensor("model.x"),
                            *found->ranks[rank].tensor("model.x")))
          << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, SlowLinks, testing::Values("tcp", "ucx"),
                         [](const auto& info) { return info.param; });

class Hosts : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "not root: network namespaces cannot be made";
    network_ = std::make_unique<Network>();
    if (!network_->good()) GTEST_SKIP() << "no network namespaces, bridges or tbf here";
    std::ofstream(hosts_of(0)) << "127.0.0.1 localhost\n127.0.1.1 node1\n";
    std::ofstream(hosts_of(1)) << "127.0.0.1 localhost\n" << Network::address(0) << " node1\n";
  }
  std::string hosts_of(int host) const {
    return (folder_.path() / (host == 0 ? "hosts-of-head" : "hosts-of-others")).string();
  }
  std::vector<std::string> job(const std::string& name) const {
    return with(small_run("ar", folder_.path() / name), {"--join-timeout", "10"});
  }
  void expect_run(const std::string& name, const std::vector<std::string>& more) {
    SCOPED_TRACE(name);
    std::vector<std::unique_ptr<Process>> processes;
    for (int host = 0; host < kHosts; ++host)
      processes.emplace_back(
          new Process(network_->start(host, with(job(name), more), {}, hosts_of(host))));
    for (const auto& process : processes) {
      const auto result = process->wait();
      EXPECT_EQ(result.exit_code, 0) << result.describe();
    }
  }

  TemporaryDirectory folder_;
  std::unique_ptr<Network> network_;
};

// As Debian's installer writes /etc/hosts.
TEST_F(Hosts, TheHeadsNameMayBeLoopbackThere) {
  expect_run("tcp", {"--transport", "tcp"});
  expect_run("auto", {});
  ASSERT_TRUE(network_->add_network(0));
  const auto unsure = network_->start(0, job("unsure"), {}, hosts_of(0)).wait();
  EXPECT_EQ(unsure.exit_code, 2) << unsure.describe();
  const std::string line = ProcessResult::last_line(unsure.err);
  EXPECT_NE(line.find("'node1' is a loopback address on this machine"), std::string::npos) << line;
  EXPECT_NE(line.find("--network-interface"), std::string::npos) << line;
  ASSERT_TRUE(network_->route_by_default(0, 1));
  expect_run("route", {});
}

// The address that could not be reached, and not that somebody waited for it.
TEST_F(Hosts, AnAddressThatOthersDoNotReachIsNamed) {
  std::vector<std::unique_ptr<Process>> processes;
  for (int host = 0; host < kHosts; ++host) {
    const std::vector<std::string> wrong = {"GRAPEVINE_NETWORK_INTERFACE=lo"};
    processes.emplace_back(
        new Process(network_->start(host, with(job("out"), {"--transport", "tcp"}),
                                    host == 0 ? wrong : std::vector<std::string>(), hosts_of(1))));
  }
  for (const auto& process : processes) {
    const auto result = process->wait();
    EXPECT_EQ(result.exit_code, 1) << result.describe();
    const std::string line = ProcessResult::last_line(result.err);
    for (const std::string part :
         {"error: cannot reach process 0 (host ", "address 127.0.0.1:", "Connection refused"})
      EXPECT_NE(line.find(part), std::string::npos) << part << result.describe();
  }
}

}  // namespace cluster_netns_test
}  // namespace grapevine
