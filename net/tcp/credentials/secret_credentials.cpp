#include "net/tcp/credentials/secret_credentials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "messages/check.hpp"
#include "net/little_endian.hpp"
#include "net/process_links.hpp"
#include "net/token.hpp"

namespace grapevine::tcp {
namespace {

constexpr std::uint32_t kSecretMagic = 0x43535647;  // "GVSC" in memory order
constexpr std::uint16_t kSecretVersion = 1;
constexpr std::size_t kSecretNonceAt = 8;
constexpr std::size_t kSecretGreetingBytes = kSecretNonceAt + kNonceDigits;

enum class Side : std::uint8_t { dialler, listener };

std::vector<std::byte> greeting_of(const std::string& nonce) {
  std::vector<std::byte> bytes;
  little_endian::put(bytes, kSecretMagic);
  little_endian::put(bytes, kSecretVersion);
  bytes.resize(kSecretNonceAt);
  for (const char digit : nonce) bytes.push_back(static_cast<std::byte>(digit));
  return bytes;
}

Moved final_error(std::string why) {
  Moved moved;
  moved.error = std::move(why);
  moved.is_final = true;
  return moved;
}

// Of a dialling side, whose listener sent `bytes` in place of a greeting.
Moved error_of_other_greeting(const std::byte* bytes) {
  constexpr std::byte kTlsAlert{21}, kTlsMajorVersion{3};
  if (bytes[0] == kTlsAlert && bytes[1] == kTlsMajorVersion)
    return final_error("it uses TLS and this process does not: give --tls to all or none");
  return final_error(
      "the secret differs: it asks for none, and this process has one: give all processes the same "
      "(GRAPEVINE_JOB_TOKEN of a job, --secret-file of nodes); or another program listens there");
}

// One thread until the handshake is complete.
class SecretStream final : public PlainStream {
 public:
  SecretStream(FileDescriptor socket, std::string secret, Side side)
      : PlainStream(std::move(socket)),
        secret_(std::move(secret)),
        side_(side),
        own_nonce_(random_hex(kNonceBytes)),
        out_(greeting_of(own_nonce_)) {}

  Moved handshake(bool& wants_write) override {
    for (;;) {
      Moved moved = send_rest();
      wants_write = moved.blocked;
      if (moved.blocked || !moved.error.empty() || step_ == Step::done) return moved;
      moved = read_rest();
      if (moved.blocked || !moved.error.empty()) return moved;
      moved = step_ == Step::greeting ? take_greeting() : take_proof();
      in_.clear();
      if (!moved.error.empty()) return moved;
    }
  }

 private:
  enum class Step : std::uint8_t { greeting, proof, done };

  Moved send_rest() {
    Moved moved;
    if (out_.empty()) return moved;
    const iovec part{out_.data(), out_.size()};
    moved = write(&part, 1);
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
    return moved;
  }

  // Nothing behind the current part of the handshake is taken from the socket.
  Moved read_rest() {
    const std::size_t wanted = step_ == Step::greeting ? kSecretGreetingBytes : kProofDigits;
    const std::size_t had = in_.size();
    in_.resize(wanted);
    const iovec part{in_.data() + had, wanted - had};
    Moved moved = read(&part, 1);
    in_.resize(had + moved.bytes);
    if (step_ == Step::greeting && moved.bytes > 0 && !is_greeting_so_far())
      return wrong_greeting();
    if (moved.ended || !moved.error.empty())  // a reset, too: it may not have read the greeting
      moved.error = "it closed the connection before its proof of the secret";
    return moved;
  }

  bool is_greeting_so_far() const { return begins_secret_greeting(in_.data(), in_.size()); }
  // Judged by two bytes, where there are as many.
  Moved wrong_greeting() {
    in_.resize(std::max<std::size_t>(in_.size(), 2));
    if (side_ == Side::dialler) return error_of_other_greeting(in_.data());
    return final_error("it sent no proof of the secret");
  }

  Moved take_greeting() {
    const auto version = little_endian::get<std::uint16_t>(in_.data() + sizeof kSecretMagic);
    if (version != kSecretVersion) return final_error("it runs another version");
    other_nonce_.assign(reinterpret_cast<const char*>(in_.data() + kSecretNonceAt), kNonceDigits);
    if (side_ == Side::dialler) put(proof_of(Side::dialler));
    step_ = Step::proof;
    return {};
  }

  Moved take_proof() {
    const Side other = side_ == Side::dialler ? Side::listener : Side::dialler;
    const std::string proof(reinterpret_cast<const char*>(in_.data()), in_.size());
    const bool right = equal_secrets(proof, proof_of(other));
    if (side_ == Side::listener)
      put(right ? proof_of(Side::listener) : std::string(kProofDigits, '\0'));
    step_ = Step::done;
    if (right) return {};
    send_rest();  // shorter than any socket buffer
    return final_error(side_ == Side::dialler ? why_refused(proof) : "it does not know the secret");
  }
  static std::string why_refused(const std::string& proof) {
    const bool refused = proof == std::string(kProofDigits, '\0');
    return std::string("the secret differs: ") +
           (refused ? "it does not accept that of this process"
                    : "the program that listens there does not prove that it knows the secret");
  }

  std::string proof_of(Side side) const {
    const bool dials = side_ == Side::dialler;
    return mac_of(secret_, {"control connection", side == Side::dialler ? "dialler" : "listener",
                            dials ? own_nonce_ : other_nonce_, dials ? other_nonce_ : own_nonce_});
  }
  void put(const std::string& text) {
    for (const char c : text) out_.push_back(static_cast<std::byte>(c));
  }

  const std::string secret_;
  const Side side_;
  const std::string own_nonce_;
  std::string other_nonce_;
  std::vector<std::byte> out_;  // of the handshake, not sent yet
  std::vector<std::byte> in_;   // of its current part
  Step step_ = Step::greeting;  // the part that is awaited
};

}  // namespace

SecretCredentials::SecretCredentials(std::string secret) : secret_(std::move(secret)) {
  GRAPEVINE_CHECK(!secret_.empty(), "a secret that every program knows");
}

std::unique_ptr<Stream> SecretCredentials::accepted(FileDescriptor socket) const {
  return std::make_unique<SecretStream>(std::move(socket), secret_, Side::listener);
}

std::unique_ptr<Stream> SecretCredentials::dialled(FileDescriptor socket,
                                                   std::vector<std::string> /*hosts*/) const {
  return std::make_unique<SecretStream>(std::move(socket), secret_, Side::dialler);
}

bool begins_secret_greeting(const std::byte* bytes, std::size_t count) {
  std::vector<std::byte> magic;
  little_endian::put(magic, kSecretMagic);
  return std::memcmp(bytes, magic.data(), std::min(count, magic.size())) == 0;
}

std::shared_ptr<const Credentials> credentials_of(std::shared_ptr<const Credentials> certificates,
                                                  const std::string& secret) {
  if (certificates || secret.empty()) return certificates;
  return std::make_shared<SecretCredentials>(secret);
}

}  // namespace grapevine::tcp
