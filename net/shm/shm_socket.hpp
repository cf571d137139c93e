// Unix-domain sockets without a file: packets, with descriptors, between processes of one host.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "messages/expected.hpp"
#include "net/cancelled.hpp"
#include "net/file_descriptor.hpp"

namespace grapevine::shm {

// All sockets here are non-blocking and keep the borders of packets. `name`: in the abstract
// namespace of the network namespace; it ends with the listener, however that ends.
// Errors (io): the system's text.
Expected<FileDescriptor> listen_at(const std::string& name);
// Errors: timeout: the queue of the listener is full; io: this process has no descriptors or memory
// left; peer_down: any other one, above all that none listens there.
Expected<FileDescriptor> connect_to(const std::string& name);
// Invalid where no connection waits.
FileDescriptor accept_from(int listener);

// Whether the process at the other end runs as the user of this one.
bool is_same_user(int socket);

inline constexpr std::size_t kLongestPacket = 512;
inline constexpr std::size_t kMostDescriptors = 4;

struct Packet {
  std::vector<std::byte> bytes;
  std::vector<FileDescriptor> descriptors;
};

inline constexpr char kNoDescriptors[] = "no descriptors are left: raise the limit (ulimit -n)";

enum class Received { packet, nothing, closed, no_descriptors };
// Does not wait. `closed` also where the packet is longer than any here. no_descriptors: this
// process has none left for those of the packet, or there are more than any packet has here.
Received receive_packet(int socket, Packet& packet);
// Whether the other end is closed, or this one was shut down; packets may be left. Does not wait.
bool has_ended(int socket);
// Waits for a packet; without a deadline as long as the other end lives. `cancelled` is asked about
// ten times a second. Errors: timeout; peer_down: as `closed`; failed: cancelled; io: as
// no_descriptors.
Expected<Packet> wait_for_packet(int socket,
                                 std::optional<std::chrono::steady_clock::time_point> deadline,
                                 const Cancelled& cancelled);

// Whether the bytes of the packet are a T, as far as their number shows; then in `value`.
template <class T>
bool read_as(const Packet& packet, T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kLongestPacket);
  if (packet.bytes.size() != sizeof value) return false;
  std::memcpy(&value, packet.bytes.data(), sizeof value);
  return true;
}

// False where it was not sent: the other end is closed, or does not read.
bool send_packet(int socket, const void* bytes, std::size_t count,
                 const std::vector<int>& descriptors = {});

}  // namespace grapevine::shm
