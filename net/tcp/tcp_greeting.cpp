#include "net/tcp/tcp_greeting.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "messages/codec.hpp"
#include "net/little_endian.hpp"

namespace grapevine::tcp {
namespace {

constexpr std::size_t kNonceAt = 8;
constexpr std::size_t kToAt = 4;
constexpr std::size_t kRefusalAt = 8;
constexpr std::size_t kPlacementAt = 12;
constexpr std::size_t kMacAt = 20;

Error not_ours(const std::string& what) { return {Errc::protocol, what}; }

// `text` at the end of `out`, with zeros up to `size` characters.
void put_text(std::vector<std::byte>& out, const std::string& text, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i)
    out.push_back(static_cast<std::byte>(i < text.size() ? text[i] : '\0'));
}

std::string text_at(const std::byte* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

std::string mac_of_proof(const char* side, const Proof& proof, const JobToken& token,
                         const LinkEnd& dialler, const LinkEnd& listener) {
  const auto refusal = static_cast<std::int32_t>(proof.refusal);
  return link_proof(token, "tcp", fmt::format("{} {}", side, refusal), dialler, listener);
}

std::string mac_of_dialler(const Proof& dialler, const JobToken& token, const Nonces& nonces) {
  return mac_of_proof("dialler", dialler, token,
                      {dialler.process, dialler.placement, nonces.dialler},
                      {dialler.to, 0, nonces.listener});
}

std::string mac_of_listener(const Proof& listener, const JobToken& token, const Nonces& nonces,
                            const Proof& dialler) {
  return mac_of_proof("listener", listener, token,
                      {dialler.process, dialler.placement, nonces.dialler},
                      {listener.process, listener.placement, nonces.listener});
}

}  // namespace

Hello make_hello() { return {random_hex(kNonceBytes)}; }

std::vector<std::byte> encode_hello(const Hello& hello) {
  std::vector<std::byte> out;
  out.reserve(kHelloBytes);
  little_endian::put(out, kMagic);
  little_endian::put(out, kProtocolVersion);
  little_endian::put(out, kCodecVersion);
  put_text(out, hello.nonce, kNonceDigits);
  out.resize(kHelloBytes);
  return out;
}

bool is_of_this_protocol(const std::byte* data) {
  return little_endian::get<std::uint32_t>(data) == kMagic;
}

Expected<Hello> decode_hello(const std::byte* data) {
  if (!is_of_this_protocol(data)) return not_ours("it does not speak this protocol");
  const auto version = little_endian::get<std::uint16_t>(data + 4);
  const auto codec = little_endian::get<std::uint16_t>(data + 6);
  if (version != kProtocolVersion || codec != kCodecVersion)
    return not_ours(fmt::format("it runs another version (protocol {}, codec {}; here {}, {})",
                                version, codec, kProtocolVersion, kCodecVersion));
  const bool zeros = std::all_of(data + kNonceAt + kNonceDigits, data + kHelloBytes,
                                 [](std::byte b) { return b == std::byte{0}; });
  if (!zeros) return not_ours("its greeting is damaged");
  return Hello{text_at(data + kNonceAt, kNonceDigits)};
}

std::vector<std::byte> encode_proof(const Proof& proof) {
  std::vector<std::byte> out;
  out.reserve(kProofBytes);
  little_endian::put(out, proof.process);
  little_endian::put(out, proof.to);
  little_endian::put(out, static_cast<std::int32_t>(proof.refusal));
  little_endian::put(out, proof.placement);
  put_text(out, proof.mac, kProofDigits);
  return out;
}

Expected<Proof> decode_proof(const std::byte* data) {
  Proof proof;
  proof.process = little_endian::get<std::int32_t>(data);
  proof.to = little_endian::get<std::int32_t>(data + kToAt);
  proof.refusal = static_cast<Refusal>(little_endian::get<std::int32_t>(data + kRefusalAt));
  proof.placement = little_endian::get<std::uint64_t>(data + kPlacementAt);
  proof.mac = text_at(data + kMacAt, kProofDigits);
  if (proof.process < 0 || proof.to < 0) return not_ours("its greeting is damaged");
  return proof;
}

Proof proof_of_dialler(const LinkIdentity& own, std::int32_t to, const Nonces& nonces) {
  Proof proof{own.process, to, Refusal::none, own.placement, {}};
  proof.mac = mac_of_dialler(proof, own.token, nonces);
  return proof;
}

Proof proof_of_listener(const LinkIdentity& own, Refusal refusal, const Nonces& nonces,
                        const Proof& dialler) {
  Proof proof{own.process, dialler.process, refusal, own.placement, {}};
  proof.mac = mac_of_listener(proof, own.token, nonces, dialler);
  return proof;
}

bool is_right_dialler(const Proof& dialler, const JobToken& token, const Nonces& nonces) {
  return equal_secrets(dialler.mac, mac_of_dialler(dialler, token, nonces));
}

bool is_right_listener(const Proof& listener, const JobToken& token, const Nonces& nonces,
                       const Proof& dialler) {
  return listener.to == dialler.process &&
         equal_secrets(listener.mac, mac_of_listener(listener, token, nonces, dialler));
}

}  // namespace grapevine::tcp
