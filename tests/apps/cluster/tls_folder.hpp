// Certificates for the tests of the command line.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "net/tcp/tls/tls_certificates.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace cluster_test {

// As a user makes them. Returns the folder.
inline std::string made_certificates(const std::filesystem::path& folder) {
  const auto made = run_process({"node", "--make-certificates", folder.string()});
  EXPECT_EQ(made.exit_code, 0) << made.describe();
  return folder.string();
}

// That are no longer valid.
inline std::string expired_certificates(const std::filesystem::path& folder) {
  EXPECT_TRUE(tcp::Authority().issue(folder.string(), std::chrono::seconds(-1)).ok());
  return folder.string();
}

}  // namespace cluster_test
}  // namespace grapevine
