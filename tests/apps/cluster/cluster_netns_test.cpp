// A run over three network namespaces joined by slow links: what separate machines would see.
#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "net/ucx/ucx.hpp"
#include "tests/apps/cluster/network.hpp"
#include "tests/apps/process.hpp"

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

}  // namespace cluster_netns_test
}  // namespace grapevine
