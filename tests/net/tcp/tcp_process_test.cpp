// The TCP transport between real processes.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "tests/conformance/process_suite.hpp"
#include "tests/net/tcp/tcp_world.hpp"

namespace grapevine::conformance {
namespace tcp_process_test {

struct TcpWire {
  using Options = TcpOptions;
  static constexpr char kName[] = "TCP";
  static constexpr std::size_t kLarge = std::size_t{256} << 20;
  static constexpr char kSilence[] = "";
  static FrozenTensor flood(int) {
    static const FrozenTensor data = filled(kLarge, 1);
    return data;
  }
  static Options options() { return loopback(); }
  static std::unique_ptr<RemoteTransport> make(const Options& options) {
    return conformance::make(options);
  }
};

const bool kOtherProcess = become_other_process<TcpWire>();
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, ProcessSuite, TcpWire);

class TcpProcess : public ProcessSuite<TcpWire> {};

TEST_F(TcpProcess, ADeathInMidPayloadIsOnePeerDown) {
  start("flood");
  ASSERT_TRUE(inbox_->wait_messages(1));
  const FrozenTensor data = filled(TcpWire::kLarge / 4, 1);
  for (int i = 0; i < 4; ++i) send(with_data(numbered(0, 1, i), data));
  other_->signal(SIGKILL);
  ASSERT_TRUE(inbox_->wait_down(1));
  EXPECT_LT(inbox_->message_count(), 1U + kFloods) << "it died too late for this test";
  EXPECT_TRUE(inbox_->arrivals().back().is_down);
  EXPECT_TRUE(counts_up(inbox_->messages_from(1)));
  send(numbered(0, 1, 0));
  EXPECT_GE(transport_->counters(0).messages_dropped, 1U);
  expect_end();
  EXPECT_EQ(inbox_->down_count(1), 1);
}

}  // namespace tcp_process_test
}  // namespace grapevine::conformance
