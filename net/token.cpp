#include "net/token.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "messages/check.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kMacBytes = 32;
using Mac = std::array<unsigned char, kMacBytes>;

std::string hex(const unsigned char* bytes, std::size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text.push_back(kDigits[bytes[i] >> 4U]);
    text.push_back(kDigits[bytes[i] & 15U]);
  }
  return text;
}

void append(std::string& text, std::string_view part) {
  const auto size = static_cast<std::uint64_t>(part.size());
  for (unsigned shift = 0; shift < 64; shift += 8)
    text.push_back(static_cast<char>((size >> shift) & 0xffU));
  text += part;
}

Mac raw_mac(const std::string& key, std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) append(text, part);
  Mac mac{};
  std::size_t size = 0;
  const auto* done = EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key.data(), key.size(),
                               reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                               mac.data(), mac.size(), &size);
  GRAPEVINE_CHECK(done != nullptr && size == mac.size(), "OpenSSL has no HMAC with SHA-256");
  return mac;
}

}  // namespace

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> random(bytes);
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t count = ::getrandom(random.data() + at, bytes - at, 0);
    GRAPEVINE_CHECK(count >= 0 || errno == EINTR, "no random numbers: ", std::strerror(errno));
    if (count > 0) at += static_cast<std::size_t>(count);
  }
  return hex(random.data(), random.size());
}

std::string mac_of(const std::string& key, std::initializer_list<std::string_view> parts) {
  const Mac mac = raw_mac(key, parts);
  return hex(mac.data(), mac.size());
}

bool equal_secrets(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

JobToken job_token(const std::string& key, const std::string& nonce) {
  const Mac mac = raw_mac(key, {"data plane", nonce});
  JobToken token{};
  std::memcpy(token.data(), mac.data(), token.size());
  return token;
}

bool equal_tokens(const JobToken& a, const JobToken& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace grapevine
