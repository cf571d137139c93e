// Worlds of TCP transports on loopback, for tests.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/tcp/tcp.hpp"
#include "tests/conformance/transport_suite.hpp"

namespace grapevine::conformance {

inline constexpr Duration kTimeout = kHangDeadline;
inline constexpr JobToken kJob = {std::byte{7}, std::byte{1}};
inline constexpr JobToken kOtherJob = {std::byte{7}, std::byte{2}};

inline TcpOptions loopback() {
  TcpOptions options;
  options.host = "127.0.0.1";
  return options;
}

inline std::unique_ptr<RemoteTransport> make(const TcpOptions& options = loopback()) {
  auto made = make_tcp_transport(options);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::move(*made) : nullptr;
}

inline Placement place(std::vector<std::int32_t> process_of, std::int32_t own,
                       std::int32_t processes) {
  Placement placement;
  placement.process_of = std::move(process_of);
  placement.own_process = own;
  for (std::int32_t p = 0; p < processes; ++p)
    placement.host_of.push_back("host" + std::to_string(p));
  return placement;
}

// One rank per process.
inline Placement one_each(std::int32_t own, std::int32_t processes) {
  std::vector<std::int32_t> process_of;
  for (std::int32_t p = 0; p < processes; ++p) process_of.push_back(p);
  return place(std::move(process_of), own, processes);
}

inline std::shared_ptr<RecordingInbox> attach(Transport& transport, Rank rank,
                                              RecordingInbox::Hook hook = nullptr) {
  auto inbox = std::make_shared<RecordingInbox>(std::move(hook));
  const Expected<void> attached = transport.attach(rank, inbox);
  EXPECT_TRUE(attached.ok()) << (attached.ok() ? "" : attached.error().message);
  return inbox;
}

// The transports of all processes of a world, in this one, connected.
class TcpWorld {
 public:
  TcpWorld(std::int32_t world_size, std::int32_t ranks_each, const TcpOptions& options = loopback())
      : options_(options) {
    for (Rank r = 0; r < world_size; ++r) process_of_.push_back(r / ranks_each);
    const std::int32_t processes = process_of_.back() + 1;
    for (std::int32_t p = 0; p < processes; ++p) {
      transports_.push_back(make(options));
      addresses_.push_back(transports_.back()->address());
    }
    run_threads(processes, [&](int p) {
      const Expected<void> connected = process(p).connect(
          addresses_, place(process_of_, p, processes), kTimeout, {kJob, nullptr});
      EXPECT_TRUE(connected.ok()) << (connected.ok() ? "" : connected.error().message);
    });
  }

  RemoteTransport& process(std::int32_t p) { return *transports_[static_cast<std::size_t>(p)]; }
  RemoteTransport& endpoint(Rank rank) {
    return process(process_of_[static_cast<std::size_t>(rank)]);
  }
  void end(std::int32_t p) { transports_[static_cast<std::size_t>(p)].reset(); }
  // A process that has ended joins the others again, which are connected; `absent` are lost.
  void make_again(std::int32_t p, const std::vector<std::int32_t>& absent) {
    const Expected<void> joined = try_again(p, absent, kTimeout);
    EXPECT_TRUE(joined.ok()) << (joined.ok() ? "" : joined.error().message);
  }
  // `lost`: see ConnectOptions.
  Expected<void> try_again(std::int32_t p, const std::vector<std::int32_t>& absent,
                           Duration timeout, const std::function<bool(std::int32_t)>& lost = {}) {
    const auto processes = static_cast<std::int32_t>(transports_.size());
    auto& transport = transports_[static_cast<std::size_t>(p)] = make(options_);
    addresses_[static_cast<std::size_t>(p)] = transport->address();
    return transport->connect(addresses_, place(process_of_, p, processes), timeout,
                              {kJob, nullptr, true, absent, lost});
  }
  void set_address(std::int32_t p, const std::string& address) {
    addresses_[static_cast<std::size_t>(p)] = address;
  }

 private:
  const TcpOptions options_;
  std::vector<std::int32_t> process_of_;
  std::vector<std::string> addresses_;  // by process
  std::vector<std::unique_ptr<RemoteTransport>> transports_;
};

// Process 0 of three, with a rank each, is lost and returns again and again: as soon as its
// connect() has returned, messages of the others reach it.
inline void expect_messages_at_once_after_returns(TcpWorld& world) {
  std::vector<std::shared_ptr<RecordingInbox>> inboxes;
  for (Rank r = 0; r < 3; ++r) inboxes.push_back(attach(world.endpoint(r), r));
  for (std::ptrdiff_t time = 1; time <= 50; ++time) {
    world.end(0);
    for (const Rank r : {1, 2}) {
      ASSERT_TRUE(inboxes[static_cast<std::size_t>(r)]->wait_down(0, time));
      world.endpoint(r).expect_process(0, {}, {});
    }
    world.make_again(0, {});
    for (const Rank r : {1, 2}) world.endpoint(r).send(numbered(r, 0, 0));
    const auto returned = attach(world.endpoint(0), 0);
    ASSERT_TRUE(returned->wait_messages(2)) << "time " << time;
  }
}

}  // namespace grapevine::conformance
