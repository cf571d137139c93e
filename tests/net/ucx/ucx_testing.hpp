// What the tests of the UCX transport share with the programs that they start.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/ucx/ucx.hpp"

namespace grapevine {

inline constexpr std::int32_t kLeaving = 1000;  // messages
inline constexpr std::int64_t kLargeBytes = 64 << 20;
inline constexpr std::int32_t kStreamed = 20'000;  // messages
inline constexpr std::int64_t kAnnouncedBytes = 200'000;

inline UcxOptions loopback_options() {
  UcxOptions options;
  options.net_devices = "lo";
  return options;
}

// One rank per process.
inline Placement placement(std::int32_t own_process, std::int32_t processes, bool same_host) {
  Placement placement;
  placement.own_process = own_process;
  for (std::int32_t p = 0; p < processes; ++p) {
    placement.process_of.push_back(p);
    placement.host_of.push_back(same_host ? "here" : "host" + std::to_string(p));
  }
  return placement;
}

// Processes that share a folder find each other through files in it.
class FileRendezvous {
 public:
  explicit FileRendezvous(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void publish(std::int32_t process, const std::string& address) const {
    const std::filesystem::path unfinished = file(process).string() + ".tmp";
    std::ofstream(unfinished, std::ios::binary) << address;
    std::filesystem::rename(unfinished, file(process));
  }
  void forget(std::int32_t process) const { std::filesystem::remove(file(process)); }
  // Waits for it; empty where a minute has passed.
  std::string address_of(std::int32_t process) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!std::filesystem::exists(file(process))) {
      if (std::chrono::steady_clock::now() > deadline) return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    std::ifstream in(file(process), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // A transport that is connected to the others of `where`. `joins`: they are connected already,
  // and expect it.
  Expected<std::unique_ptr<RemoteTransport>> meet(const UcxOptions& options, const Placement& where,
                                                  bool joins = false) const {
    Expected<std::unique_ptr<RemoteTransport>> made = make_ucx_transport(options);
    if (!made) return made;
    publish(where.own_process, (*made)->address());
    std::vector<std::string> addresses;
    for (std::int32_t p = 0; p < where.processes(); ++p) addresses.push_back(address_of(p));
    ConnectOptions connecting;
    connecting.joins = joins;
    const Expected<void> connected =
        (*made)->connect(addresses, where, std::chrono::minutes(1), connecting);
    if (!connected) return connected.error();
    return made;
  }

 private:
  std::filesystem::path file(std::int32_t process) const {
    return folder_ / (std::to_string(process) + ".address");
  }

  const std::filesystem::path folder_;
};

}  // namespace grapevine
