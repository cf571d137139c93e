#include "net/tcp/tcp_greeting.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "messages/codec.hpp"
#include "messages/text/fnv1a.hpp"
#include "net/little_endian.hpp"

namespace grapevine::tcp {
namespace {

Error not_ours(const std::string& what) { return {Errc::protocol, what}; }

}  // namespace

std::string describe(Refusal refusal) {
  switch (refusal) {
    case Refusal::none:
      return "it accepted";
    case Refusal::duplicate_process:
      return "another process has this one's index: give every process its own";
    case Refusal::other_job:
      return "it belongs to another job: check the address, or end the older job";
    case Refusal::other_placement:
      return "it has other ranks in other processes: start all with the same placement";
    case Refusal::too_late:
      return "it has started without this process, or has lost it before";
    case Refusal::lower_process:
      return "a process dials only processes of lower index: check the list of addresses";
  }
  return "it refused for a reason that this version does not know";
}

std::uint64_t placement_digest(const Placement& placement) {
  std::vector<std::byte> bytes;
  little_endian::put(bytes, placement.processes());
  for (const std::int32_t process : placement.process_of) little_endian::put(bytes, process);
  return fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

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
