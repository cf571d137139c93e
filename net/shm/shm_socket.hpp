// Unix-domain sockets without a file: packets, with descriptors, between processes of one host.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "messages/expected.hpp"
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

// False where it was not sent: the other end is closed, or does not read.
bool send_packet(int socket, const void* bytes, std::size_t count,
                 const std::vector<int>& descriptors = {});

}  // namespace grapevine::shm
