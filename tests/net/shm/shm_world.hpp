// Worlds of shared-memory transports in one process, for tests.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/shm/shm.hpp"
#include "tests/net/tcp/tcp_world.hpp"

namespace grapevine::conformance {

inline std::unique_ptr<RemoteTransport> make_shm(const ShmOptions& options = {}) {
  auto made = make_shm_transport(options);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::move(*made) : nullptr;
}

// The transports of all processes of a world, in this one, connected.
class ShmWorld {
 public:
  ShmWorld(std::int32_t world_size, std::int32_t ranks_each, const ShmOptions& options = {})
      : options_(options) {
    for (Rank r = 0; r < world_size; ++r) process_of_.push_back(r / ranks_each);
    const std::int32_t processes = process_of_.back() + 1;
    for (std::int32_t p = 0; p < processes; ++p) {
      transports_.push_back(make_shm(options));
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
  // A process that has ended joins the others again; `absent` are lost. `lost`: see ConnectOptions.
  Expected<void> join_again(std::int32_t p, const std::vector<std::int32_t>& absent,
                            Duration timeout = kTimeout,
                            const std::function<bool(std::int32_t)>& lost = {}) {
    const auto processes = static_cast<std::int32_t>(transports_.size());
    auto& transport = transports_[static_cast<std::size_t>(p)] = make_shm(options_);
    addresses_[static_cast<std::size_t>(p)] = transport->address();
    return transport->connect(addresses_, place(process_of_, p, processes), timeout,
                              {kJob, nullptr, true, absent, lost});
  }

 private:
  const ShmOptions options_;
  std::vector<std::int32_t> process_of_;
  std::vector<std::string> addresses_;  // by process
  std::vector<std::unique_ptr<RemoteTransport>> transports_;
};

}  // namespace grapevine::conformance
