// A certificate that expires while a process uses it.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "net/tcp/tls/tls_certificates.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine {

// Read while it was valid; it has expired when this returns. Null after a failure.
inline std::shared_ptr<const tcp::TlsContext> expired_context(const tcp::Authority& authority) {
  constexpr std::chrono::seconds kLongestTerm{64};  // only a hang reaches it
  for (std::chrono::seconds term{1}; term <= kLongestTerm; term *= 2) {
    std::string folder = (std::filesystem::temp_directory_path() / "expired-XXXXXX").string();
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    EXPECT_TRUE(authority.issue(folder, term).ok());
    const auto context = tcp::TlsContext::load(folder);
    // A file is refused once the certificate has expired.
    while (tcp::TlsContext::load(folder).ok())
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::filesystem::remove_all(folder);
    if (context) return *context;  // else this machine was too slow for the term
  }
  ADD_FAILURE() << "no certificate could be read before it expired";
  return nullptr;
}

}  // namespace grapevine
