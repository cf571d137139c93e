#include "actors/cluster/secure/basp_guard.hpp"

#include <algorithm>
#include <string>

#include <caf/io/basp/header.hpp>
#include <caf/io/basp/version.hpp>

namespace grapevine {
namespace {

static_assert(caf::io::basp::header_size == 32 && caf::io::basp::version == 3,
              "the layout of headers is that of this version of CAF's protocol");

constexpr std::size_t kLengthAt = 4;  // behind the kind, two empty bytes and flags
constexpr auto kLastKind = static_cast<unsigned char>(caf::io::basp::message_type::heartbeat);

// A message that one process sends in the name of another, or through it: every two processes that
// exchange messages have a connection.
constexpr auto kRouted = static_cast<unsigned char>(caf::io::basp::message_type::routed_message);

Error not_of_a_process() {
  return {Errc::protocol, "its bytes are not those of a process of Grapevine"};
}

}  // namespace

Expected<void> BaspGuard::take(const void* bytes, std::size_t count) {
  const auto* next = static_cast<const unsigned char*>(bytes);
  while (count > 0) {
    if (payload_ > 0) {
      const std::size_t passed = std::min<std::size_t>(count, payload_);
      payload_ -= static_cast<std::uint32_t>(passed);
      next += passed, count -= passed;
      complete_ = complete_ || payload_ == 0;
      continue;
    }
    const std::size_t copied = std::min(count, header_.size() - filled_);
    std::copy_n(next, copied, header_.begin() + static_cast<std::ptrdiff_t>(filled_));
    filled_ += copied, next += copied, count -= copied;
    if (auto checked = check_start(); !checked) return checked;
    if (filled_ < header_.size()) return {};
    if (auto checked = check_header(); !checked) return checked;
    filled_ = 0;
  }
  return {};
}

// Other programs send less than a header and then wait: its first bytes are enough for a refusal.
Expected<void> BaspGuard::check_start() const {
  const unsigned char kind = header_[0];
  const bool fits =
      greeted_ ? kind <= kLastKind && kind != kRouted : kind == static_cast<unsigned char>(first_);
  if (!fits || header_[1] != 0 || header_[2] != 0) return not_of_a_process();
  return {};
}

Expected<void> BaspGuard::check_header() {
  payload_ = 0;
  for (std::size_t i = 0; i < 4; ++i) payload_ = payload_ << 8 | header_[kLengthAt + i];
  const bool short_one = !greeted_ && first_ == First::greeting_of_dialling_side;
  greeted_ = true;
  longest_ = std::max(longest_, payload_);
  if (short_one && payload_ > kMostGreetingBytes) return not_of_a_process();
  if (payload_ > kMostPayloadBytes)
    return Error{Errc::protocol, "it sends a message of more than " +
                                     std::to_string(kMostPayloadBytes >> 20) + " MiB"};
  complete_ = complete_ || payload_ == 0;
  return {};
}

}  // namespace grapevine
