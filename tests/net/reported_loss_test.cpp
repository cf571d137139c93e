// A process that is reported lost, over each wire between processes: what has arrived from it comes
// before its loss.
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "net/ucx/ucx.hpp"
#include "tests/net/shm/shm_world.hpp"
#include "tests/net/ucx/ucx_testing.hpp"

namespace grapevine::conformance {
namespace reported_loss_test {

constexpr int kMessages = 50;  // few enough for the receiver's kernel to hold them

// Whether the receivers' kernel has all bytes that this process has written to its connections: on
// a loaded machine they may still be under way, also from a process to itself.
bool sockets_are_acknowledged() {
  constexpr int kMostDescriptors = 1024;
  for (int descriptor = 0; descriptor < kMostDescriptors; ++descriptor) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) continue;
    int unacknowledged = 0;
    if (::ioctl(descriptor, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 0) return false;
  }
  return true;
}

// `arrives`: what has left the sender is where the receiver finds it at once, as in the memory or
// the kernel of one machine. REQUIRES: two connected processes, of a rank each.
void expect_the_loss_last(RemoteTransport& here, RemoteTransport& there, std::int64_t bytes,
                          bool arrives = true) {
  std::promise<void> entered, release;
  const auto released = release.get_future().share();
  const auto inbox = attach(here, 0, [&](const Envelope& message) {
    if (index_of(message) != 0) return;
    entered.set_value();
    released.wait();
  });
  const auto sender = attach(there, 1);
  there.send(numbered(1, 0, 0));
  entered.get_future().wait();
  for (int i = 1; i < kMessages; ++i) {
    Envelope message = numbered(1, 0, i);
    if (bytes > 0)
      std::get<Chunk>(message.payload).data =
          FrozenTensor::freeze(at::empty({bytes}, at::TensorOptions(at::kByte)));
    there.send(std::move(message));
  }
  EXPECT_TRUE(eventually([&] { return there.queued_bytes() == 0; })) << "all have left";
  EXPECT_TRUE(eventually(sockets_are_acknowledged));
  here.process_down(1);
  release.set_value();
  ASSERT_TRUE(inbox->wait_down(1));
  if (arrives) {
    EXPECT_EQ(inbox->message_count(), static_cast<std::size_t>(kMessages));
  }
  EXPECT_EQ(inbox->down_count(1), 1);
}

TEST(ReportedLoss, ComesAfterWhatHasArrivedOverShm) {
  for (const std::int64_t bytes : {0, 200}) {
    ShmWorld world(2, 1);
    expect_the_loss_last(world.process(0), world.process(1), bytes);
  }
}

TEST(ReportedLoss, ComesAfterWhatHasArrivedOverTcp) {
  for (const std::int64_t bytes : {0, 200}) {
    TcpWorld world(2, 1);
    expect_the_loss_last(world.process(0), world.process(1), bytes);
  }
}

TEST(ReportedLoss, ComesOnceOverUcx) {
  if (!ucx_built_in()) GTEST_SKIP() << "built without UCX";
  std::vector<std::unique_ptr<RemoteTransport>> ends;
  std::vector<std::string> addresses;
  for (int p = 0; p < 2; ++p) {
    auto made = make_ucx_transport(loopback_options());
    ASSERT_TRUE(made.ok()) << made.error().message;
    addresses.push_back((*made)->address());
    ends.push_back(*std::move(made));
  }
  run_threads(2, [&](int p) {
    EXPECT_TRUE(ends[static_cast<std::size_t>(p)]
                    ->connect(addresses, placement(p, 2, false), kHangDeadline)
                    .ok());
  });
  // UCX keeps messages in buffers of its own, at both ends.
  expect_the_loss_last(*ends[0], *ends[1], 0, false);
}

}  // namespace reported_loss_test
}  // namespace grapevine::conformance
