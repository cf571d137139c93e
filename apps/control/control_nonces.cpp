#include "apps/control/control_nonces.hpp"

#include <cstdint>
#include <cstdlib>

#include "net/token.hpp"

namespace grapevine {
namespace {

std::int64_t milliseconds_of(ControlNonces::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

ControlNonces::ControlNonces() : key_(random_hex(2 * kNonceBytes)) {}

std::string ControlNonces::make(Clock::time_point now) const {
  const std::string text = std::to_string(milliseconds_of(now)) + "." + random_hex(kNonceBytes);
  return text + "." + mac_of(key_, {text});
}

bool ControlNonces::use(const std::string& nonce, Clock::time_point now) {
  const auto end = nonce.rfind('.');
  if (end == std::string::npos) return false;
  const std::string text = nonce.substr(0, end);
  if (!equal_secrets(nonce.substr(end + 1), mac_of(key_, {text}))) return false;
  const std::int64_t age = milliseconds_of(now) - std::strtoll(text.c_str(), nullptr, 10);
  if (age < 0 || std::chrono::milliseconds(age) >= kValid) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = used_.begin(); at != used_.end();)
    at = now >= at->second ? used_.erase(at) : std::next(at);
  return used_.emplace(nonce, now + kValid).second;
}

}  // namespace grapevine
