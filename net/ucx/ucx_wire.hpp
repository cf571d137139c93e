// The wire format of the UCX transport around the codec's headers, and the contents of its
// addresses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "messages/expected.hpp"

namespace grapevine::ucx {

enum class Kind : std::uint16_t {
  hello = 1,      // the sender has an endpoint to the receiver
  hello_ack = 2,  // the receiver of a hello has one back
  message = 3,    // the prefix is followed by the codec's header; the tensors are the AM's data
  departure = 4,  // `rank` of the sender's process has left
  goodbye = 5,    // the sender's process is about to end; nothing of it follows but `seen`
  seen = 6        // everything up to the goodbye has arrived
};

// Begins every active message's header. Message, departure and goodbye are numbered per pair of
// processes and take effect in that order, however UCX completes them.
struct Prefix {
  static constexpr std::uint32_t kMagic = 0x58555647;  // "GVUX" in memory order
  static constexpr std::uint16_t kVersion = 1;

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  Kind kind = Kind::hello;
  std::int32_t process = 0;  // the sender's
  std::int32_t rank = 0;     // departure only
  std::uint64_t token = 0;   // the sender's: a process of an earlier job does not know it
  std::uint64_t number = 0;  // from 0; zero where not numbered
};
static_assert(sizeof(Prefix) == 32, "no padding: the struct is the wire format");

// Reads the prefix of an AM header. Errors (protocol): too short, another magic, version or kind.
Expected<Prefix> read_prefix(const void* header, std::size_t size);

// The parts of address().
struct Address {
  std::uint64_t token = 0;
  std::int32_t pid = 0;
  std::string any;      // UCX's own, opaque: over all transports
  std::string network;  // the same without shared memory
};

std::string pack_address(const Address& address);
// Errors (bad_input): not made by pack_address of this version, or damaged; UCX itself would crash
// on such bytes.
Expected<Address> unpack_address(const std::string& bytes);

}  // namespace grapevine::ucx
