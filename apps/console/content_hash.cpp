#include "apps/console/content_hash.hpp"

#include <openssl/evp.h>

#include <array>

#include "messages/check.hpp"

namespace grapevine {

std::string content_hash(std::string_view content) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  const int done = EVP_Digest(content.data(), content.size(), digest.data(), &length, EVP_sha256(),
                              /*impl=*/nullptr);
  GRAPEVINE_CHECK(done == 1, "OpenSSL has no SHA-256");
  std::array<unsigned char, 2 * EVP_MAX_MD_SIZE> text{};
  const int characters = EVP_EncodeBlock(text.data(), digest.data(), static_cast<int>(length));
  return "'sha256-" + std::string(text.begin(), text.begin() + characters) + "'";
}

}  // namespace grapevine
