// SecretCredentials: the proof of a secret, without encryption.
//
//   both ends, at once  → a greeting of 40 bytes
//   dialler → listener    its proof
//   listener → dialler    its proof, or a refusal; the bytes of the connection follow
//
// A proof is an HMAC under the secret of the numbers of both greetings and of the side that proves
// itself: the secret is not sent, and a recorded proof is of no use, since the other end's number
// is new. The dialler proves itself first: a program that dials without the secret learns nothing
// of it that it could try secrets against. Both greet at once, so that an end without these
// credentials is recognised by what it sends instead, and recognises this one.
//
// Greeting, 40 bytes (integers are little-endian):
//   offset  size
//        0     4  magic "GVSC"
//        4     2  version of this handshake
//        6     2  zero
//        8    32  random number in hexadecimal digits
//
// Proof: 64 hexadecimal digits; a refusal: 64 bytes of zero.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "net/tcp/credentials/credentials.hpp"

namespace grapevine::tcp {

// Both ends need the same secret. What follows the handshake is not protected: see TlsContext.
class SecretCredentials final : public Credentials {
 public:
  // REQUIRES: a secret that is not empty.
  explicit SecretCredentials(std::string secret);

  std::unique_ptr<Stream> accepted(FileDescriptor socket) const override;
  std::unique_ptr<Stream> dialled(FileDescriptor socket,
                                  std::vector<std::string> hosts) const override;
  bool buffers() const override { return false; }

 private:
  const std::string secret_;
};

// Whether these are the first bytes of the greeting; `count` at least 1.
bool begins_secret_greeting(const std::byte* bytes, std::size_t count);

// What a dialling side reports that has no secret where it needs one.
inline constexpr char kSecretIsMissing[] =
    "the secret differs: it asks for one, and this process has none: give all processes the same "
    "(GRAPEVINE_JOB_TOKEN of a job, --secret-file of nodes)";

// Of certificates, where there are any, else of a secret; null where that is empty.
std::shared_ptr<const Credentials> credentials_of(std::shared_ptr<const Credentials> certificates,
                                                  const std::string& secret);

}  // namespace grapevine::tcp
