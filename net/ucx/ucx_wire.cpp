#include "net/ucx/ucx_wire.hpp"

#include <cstring>
#include <limits>
#include <string_view>

#include "messages/check.hpp"
#include "messages/text/fnv1a.hpp"

namespace grapevine::ucx {
namespace {

// Precedes UCX's two addresses.
struct AddressHead {
  std::uint32_t magic = Prefix::kMagic;
  std::uint16_t version = Prefix::kVersion;
  std::uint16_t any_bytes = 0;
  std::uint16_t network_bytes = 0;
  std::uint16_t reserved = 0;
  std::int32_t pid = 0;
  std::uint64_t token = 0;
  std::uint64_t checksum = 0;  // of all the rest; computed while this is zero
};
static_assert(sizeof(AddressHead) == 32, "no padding: the struct is the format");

std::string_view bytes_of(const AddressHead& head) {
  return {reinterpret_cast<const char*>(&head), sizeof head};
}

// Addresses travel through files and command lines, where they are cut off or mangled.
std::uint64_t checksum(AddressHead head, std::string_view rest) {
  head.checksum = 0;
  return fnv1a(rest, fnv1a(bytes_of(head)));
}

}  // namespace

Expected<Prefix> read_prefix(const void* header, std::size_t size) {
  const auto refused = [](const std::string& what) {
    return Error{Errc::protocol, "message refused: " + what +
                                     "; the sender runs another version or job, or the bytes were "
                                     "damaged"};
  };
  Prefix prefix;
  if (size < sizeof prefix) return refused("its prefix has " + std::to_string(size) + " bytes");
  std::memcpy(&prefix, header, sizeof prefix);
  if (prefix.magic != Prefix::kMagic || prefix.version != Prefix::kVersion)
    return refused("its magic or version is another");
  if (prefix.kind < Kind::hello || prefix.kind > Kind::seen)
    return refused("kind " + std::to_string(static_cast<int>(prefix.kind)));
  return prefix;
}

std::string pack_address(const Address& address) {
  const auto length = [](const std::string& part) {
    GRAPEVINE_CHECK(part.size() <= std::numeric_limits<std::uint16_t>::max(),
                    "a UCX worker address of ", part.size(), " bytes");
    return static_cast<std::uint16_t>(part.size());
  };
  const std::string rest = address.any + address.network;
  AddressHead head;
  head.any_bytes = length(address.any);
  head.network_bytes = length(address.network);
  head.pid = address.pid;
  head.token = address.token;
  head.checksum = checksum(head, rest);
  return std::string(bytes_of(head)) + rest;
}

Expected<Address> unpack_address(const std::string& bytes) {
  AddressHead head;
  if (bytes.size() < sizeof head)
    return bad_input("a UCX address of " + std::to_string(bytes.size()) + " bytes is cut off");
  std::memcpy(&head, bytes.data(), sizeof head);
  const std::string rest = bytes.substr(sizeof head);
  if (head.magic != Prefix::kMagic) return bad_input("it is not the address of a UCX transport");
  if (head.version != Prefix::kVersion)
    return bad_input("a UCX address of version " + std::to_string(head.version) +
                     ", this build speaks " + std::to_string(Prefix::kVersion));
  if (rest.size() != std::size_t{head.any_bytes} + head.network_bytes ||
      head.checksum != checksum(head, rest))
    return bad_input("a UCX address of " + std::to_string(bytes.size()) + " bytes is damaged");
  return Address{head.token, head.pid, rest.substr(0, head.any_bytes), rest.substr(head.any_bytes)};
}

}  // namespace grapevine::ucx
