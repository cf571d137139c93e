#include "net/tcp/tcp_greeting.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "messages/codec.hpp"
#include "net/little_endian.hpp"

namespace grapevine::tcp {
namespace {

Error not_ours(const std::string& what) { return {Errc::protocol, what}; }

}  // namespace

std::vector<std::byte> encode_hello(const Hello& hello) {
  std::vector<std::byte> out;
  out.reserve(kHelloBytes);
  little_endian::put(out, kMagic);
  little_endian::put(out, kProtocolVersion);
  little_endian::put(out, kCodecVersion);
  little_endian::put(out, hello.process);
  little_endian::put(out, static_cast<std::int32_t>(hello.refusal));
  out.insert(out.end(), hello.job.begin(), hello.job.end());
  little_endian::put(out, hello.placement);
  out.resize(kHelloBytes);
  return out;
}

Expected<Hello> decode_hello(const std::byte* data) {
  if (little_endian::get<std::uint32_t>(data) != kMagic)
    return not_ours("it does not speak this protocol");
  const auto version = little_endian::get<std::uint16_t>(data + 4);
  const auto codec = little_endian::get<std::uint16_t>(data + 6);
  if (version != kProtocolVersion || codec != kCodecVersion)
    return not_ours(fmt::format("it runs another version (protocol {}, codec {}; here {}, {})",
                                version, codec, kProtocolVersion, kCodecVersion));
  Hello hello;
  hello.process = little_endian::get<std::int32_t>(data + 8);
  hello.refusal = static_cast<Refusal>(little_endian::get<std::int32_t>(data + 12));
  std::copy_n(data + 16, hello.job.size(), hello.job.begin());
  hello.placement = little_endian::get<std::uint64_t>(data + 32);
  const bool zeros =
      std::all_of(data + 40, data + kHelloBytes, [](std::byte b) { return b == std::byte{0}; });
  if (!zeros || hello.process < 0) return not_ours("its greeting is damaged");
  return hello;
}

}  // namespace grapevine::tcp
