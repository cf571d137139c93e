// A run over three network namespaces joined by slow links: what separate machines would see.
#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "actors/checkpoint.hpp"
#include "net/ucx.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace {

constexpr int kHosts = 3;

bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;  // NOLINT: fixed commands
}

// Three namespaces on a bridge in a fourth, so that nothing of the machine's own network changes.
// Gone with the object.
class Network {
 public:
  Network() : prefix_("gv" + std::to_string(::getpid()) + "n") {
    const std::string bridge = prefix_ + "b";
    good_ = shell("ip netns add " + bridge) && in(bridge, "ip link add br0 type bridge") &&
            in(bridge, "ip link set br0 up");
    for (int host = 0; host < kHosts && good_; ++host) good_ = add_host(host, bridge);
  }
  ~Network() {
    for (int host = 0; host < kHosts; ++host) shell("ip netns del " + name(host));
    shell("ip netns del " + prefix_ + "b");
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  bool good() const { return good_; }
  std::string name(int host) const { return prefix_ + std::to_string(host); }
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }

 private:
  static bool in(const std::string& space, const std::string& command) {
    return shell("ip netns exec " + space + " " + command);
  }
  bool add_host(int host, const std::string& bridge) {
    const std::string space = name(host), port = "port" + std::to_string(host);
    return shell("ip netns add " + space) &&
           shell("ip link add eth0 netns " + space + " type veth peer name " + port + " netns " +
                 bridge) &&
           in(bridge, "ip link set " + port + " master br0") &&
           in(bridge, "ip link set " + port + " up") && in(space, "ip link set lo up") &&
           in(space, "ip addr add " + address(host) + "/24 dev eth0") &&
           in(space, "ip link set eth0 up") &&
           in(space, "tc qdisc add dev eth0 root tbf rate 200mbit burst 256kbit latency 50ms");
  }

  const std::string prefix_;
  bool good_ = false;
};

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
            "--data",  "glyphs",      "--steps",    "8",         "--batch-size",
            "8",       "--out",       out.string(), "--threads", "1",
            "--trace", "off",         "--validate", "end"};
  }

  Process start(int host, std::vector<std::string> grapevine) const {
    std::vector<std::string> command = {"netns", "exec", network_->name(host),
                                        GRAPEVINE_EXECUTABLE};
    command.insert(command.end(), grapevine.begin(), grapevine.end());
    command.insert(command.end(), {"--transport", GetParam()});
    ProcessOptions options;
    options.program = "/usr/sbin/ip";
    options.environment = {"RANK=" + std::to_string(host),
                           "WORLD_SIZE=" + std::to_string(kHosts),
                           "LOCAL_RANK=0",
                           "LOCAL_WORLD_SIZE=1",
                           "MASTER_ADDR=" + Network::address(0),
                           "MASTER_PORT=29511",
                           "UCX_TLS=tcp",
                           "UCX_NET_DEVICES=eth0"};
    return Process(command, options);
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

}  // namespace
}  // namespace grapevine
