#include "actors/cluster/join/one_time_nonces.hpp"

#include <cstdlib>

#include "net/token.hpp"

namespace grapevine {

OneTimeNonces::OneTimeNonces() : key_(random_hex(2 * kNonceBytes)) {}

std::string OneTimeNonces::make(Timestamp now) const {
  const std::string text = std::to_string(now.count()) + "." + random_hex(kNonceBytes);
  return text + "." + mac_of(key_, {text});
}

bool OneTimeNonces::use(const std::string& nonce, Timestamp now) {
  const auto end = nonce.rfind('.');
  if (end == std::string::npos) return false;
  const std::string text = nonce.substr(0, end);
  if (!equal_secrets(nonce.substr(end + 1), mac_of(key_, {text}))) return false;
  const Timestamp given{std::strtoll(text.c_str(), nullptr, 10)};
  const auto is_valid = [now](Timestamp time) { return time <= now && now - time < kValid; };
  if (!is_valid(given)) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!used_.empty() && !is_valid(Timestamp{used_.begin()->first})) used_.erase(used_.begin());
  return used_.emplace(given.count(), nonce).second;
}

}  // namespace grapevine
