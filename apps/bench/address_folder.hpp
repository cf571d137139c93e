// AddressFolder: processes that share a folder find each other's addresses in it.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

class AddressFolder {
 public:
  explicit AddressFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  Expected<void> publish(std::int32_t process, const std::string& address) const {
    const std::filesystem::path unfinished = file(process).string() + ".tmp";
    std::error_code error;
    {
      std::ofstream out(unfinished, std::ios::binary);
      out << address;
      if (!out.flush()) return Error{Errc::io, unfinished.string() + ": cannot be written"};
    }
    std::filesystem::rename(unfinished, file(process), error);
    if (error) return Error{Errc::io, unfinished.string() + ": " + error.message()};
    return {};
  }

  Expected<std::vector<std::string>> all(std::int32_t processes,
                                         std::chrono::seconds within) const {
    const auto deadline = std::chrono::steady_clock::now() + within;
    std::vector<std::string> addresses;
    for (std::int32_t process = 0; process < processes; ++process) {
      std::error_code ignored;
      while (!std::filesystem::exists(file(process), ignored)) {
        if (std::chrono::steady_clock::now() > deadline)
          return Error{Errc::timeout, "rank " + std::to_string(process) +
                                          " has not started after " +
                                          std::to_string(within.count()) + " s"};
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      std::ifstream in(file(process), std::ios::binary);
      addresses.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    return addresses;
  }

 private:
  std::filesystem::path file(std::int32_t process) const {
    return folder_ / (std::to_string(process) + ".address");
  }

  const std::filesystem::path folder_;
};

}  // namespace grapevine
