// New certificates for the processes of a cluster.
#pragma once
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine::tcp {

inline constexpr std::chrono::hours kCertificateTerm{24 * 825};
// The files in a folder of certificates.
inline constexpr std::array<const char*, 3> kCertificateFiles{"ca.pem", "cert.pem", "key.pem"};

// A new certificate authority (EC P-256). Its key is in this object alone: afterwards nobody can
// sign another certificate in its name.
class Authority {
 public:
  explicit Authority(std::chrono::seconds term = kCertificateTerm);
  ~Authority();

  // Writes ca.pem, cert.pem and key.pem into `folder`, which is made where it is missing; the key
  // is readable by the owner alone. `hosts`: the names and addresses of the machine, with which
  // other processes compare what they dial, because the folder gets a file kCheckHosts then; the
  // first one is also in the certificate's subject, for people. None: for any machine.
  // Errors (bad_input): one of the files exists; (io): the folder cannot be written.
  Expected<void> issue(const std::string& folder, std::chrono::seconds term = kCertificateTerm,
                       const std::vector<std::string>& hosts = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace grapevine::tcp
