#include "net/tcp.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "net/tcp_dial.hpp"
#include "net/tcp_frames.hpp"
#include "tests/conformance/transport_suite.hpp"

namespace grapevine::conformance {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 60s;  // only a hang uses it up

TcpOptions loopback() {
  TcpOptions options;
  options.host = "127.0.0.1";
  options.job = 7;
  return options;
}

std::unique_ptr<RemoteTransport> make(const TcpOptions& options = loopback()) {
  auto made = make_tcp_transport(options);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::move(*made) : nullptr;
}

Placement place(std::vector<std::int32_t> process_of, std::int32_t own, std::int32_t processes) {
  Placement placement;
  placement.process_of = std::move(process_of);
  placement.own_process = own;
  for (std::int32_t p = 0; p < processes; ++p)
    placement.host_of.push_back("host" + std::to_string(p));
  return placement;
}

// `processes` transports in one process, each with `ranks_each` ranks of the world.
class TcpProcesses {
 public:
  TcpProcesses(std::int32_t world_size, std::int32_t ranks_each,
               const TcpOptions& options = loopback()) {
    for (Rank r = 0; r < world_size; ++r) process_of_.push_back(r / ranks_each);
    const std::int32_t processes = process_of_.back() + 1;
    std::vector<std::string> addresses;
    for (std::int32_t p = 0; p < processes; ++p) {
      transports_.push_back(make(options));
      addresses.push_back(transports_.back()->address());
    }
    run_threads(processes, [&](int p) {
      const Expected<void> connected =
          transports_[p]->connect(addresses, place(process_of_, p, processes), kPatience);
      EXPECT_TRUE(connected.ok()) << (connected.ok() ? "" : connected.error().message);
    });
  }
  RemoteTransport& endpoint(Rank rank) { return *transports_[process_of_[rank]]; }
  RemoteTransport& process(std::int32_t p) { return *transports_[p]; }
  void end(std::int32_t p) { transports_[p].reset(); }

 private:
  std::vector<std::int32_t> process_of_;
  std::vector<std::unique_ptr<RemoteTransport>> transports_;
};

class OneRankEach : public TcpProcesses {
 public:
  explicit OneRankEach(std::int32_t world_size) : TcpProcesses(world_size, 1) {}
};
class TwoRanksEach : public TcpProcesses {
 public:
  explicit TwoRanksEach(std::int32_t world_size) : TcpProcesses(world_size, 2) {}
};

INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, TransportSuite, OneRankEach);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpTwoRanksEach, TransportSuite, TwoRanksEach);

}  // namespace
}  // namespace grapevine::conformance
