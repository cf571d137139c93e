#include "net/shm/shm_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "messages/check.hpp"

namespace grapevine::shm {
namespace {

constexpr int kBacklog = 256;

Error system_error() { return {Errc::io, std::generic_category().message(errno)}; }

FileDescriptor make_socket() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

struct Name {
  sockaddr_un address{};
  socklen_t size = 0;
};

Name abstract(const std::string& name) {
  Name made;
  made.address.sun_family = AF_UNIX;
  const std::size_t count = std::min(name.size(), sizeof made.address.sun_path - 1);
  std::memcpy(made.address.sun_path + 1, name.data(), count);  // behind a zero: no file
  made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return made;
}

constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int) * kMostDescriptors);

void take_descriptors(msghdr& header, std::vector<FileDescriptor>& into) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(c) + i * sizeof(int), sizeof descriptor);
      into.emplace_back(descriptor);
    }
  }
}

}  // namespace

Expected<FileDescriptor> listen_at(const std::string& name) {
  FileDescriptor socket = make_socket();
  const Name at = abstract(name);
  if (socket.get() < 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at.address), at.size) != 0 ||
      ::listen(socket.get(), kBacklog) != 0)
    return system_error();
  return socket;
}

Expected<FileDescriptor> connect_to(const std::string& name) {
  FileDescriptor socket = make_socket();
  const Name to = abstract(name);
  if (socket.get() >= 0 &&
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.address), to.size) == 0)
    return socket;
  const int error = errno;
  if (error == EAGAIN) return Error{Errc::timeout, "it accepts no connection at present"};
  if (error == EMFILE || error == ENFILE) return Error{Errc::io, kNoDescriptors};
  const bool here = error == ENOMEM || error == ENOBUFS;
  return Error{here ? Errc::io : Errc::peer_down, std::generic_category().message(error)};
}

FileDescriptor accept_from(int listener) {
  return FileDescriptor(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

bool is_same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

Received receive_packet(int socket, Packet& packet) {
  std::array<std::byte, kLongestPacket> bytes;
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control;
  iovec part{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t count = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  // The other end was closed with packets unread. That is reported once, before the packets here.
  if (count < 0 && errno == ECONNRESET) count = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Received::nothing;
  if (count <= 0) return Received::closed;
  packet.descriptors.clear();
  take_descriptors(header, packet.descriptors);
  if ((header.msg_flags & MSG_TRUNC) != 0) return Received::closed;
  if ((header.msg_flags & MSG_CTRUNC) != 0) return Received::no_descriptors;
  packet.bytes.assign(bytes.begin(), bytes.begin() + count);
  return Received::packet;
}

bool has_ended(int socket) {
  pollfd watched{socket, 0, 0};  // an end is always reported
  return ::poll(&watched, 1, 0) > 0;
}

Expected<Packet> wait_for_packet(int socket,
                                 std::optional<std::chrono::steady_clock::time_point> deadline,
                                 const Cancelled& cancelled) {
  using Clock = std::chrono::steady_clock;
  Packet packet;
  for (;;) {
    const Received received = receive_packet(socket, packet);
    if (received == Received::packet) return packet;
    if (received == Received::closed) return Error{Errc::peer_down, "the connection has ended"};
    if (received == Received::no_descriptors) return Error{Errc::io, kNoDescriptors};
    if (cancelled && cancelled()) return Error{Errc::failed, "asked to stop"};
    const auto now = Clock::now();
    if (deadline && now >= *deadline) return Error{Errc::timeout, "no answer came in time"};
    auto wait = std::chrono::duration_cast<Clock::duration>(kCancelPoll);
    if (deadline) wait = std::min<Clock::duration>(wait, *deadline - now);
    pollfd waiting{socket, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
    ::poll(&waiting, 1, static_cast<int>(left));
  }
}

bool send_packet(int socket, const void* bytes, std::size_t count,
                 const std::vector<int>& descriptors) {
  GRAPEVINE_CHECK(descriptors.size() <= kMostDescriptors && count > 0 && count <= kLongestPacket,
                  "a packet of ", count, " bytes and ", descriptors.size(), " descriptors");
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  iovec part{const_cast<void*>(bytes), count};  // NOLINT: sendmsg() only reads it
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    cmsghdr* const c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    std::memcpy(CMSG_DATA(c), descriptors.data(), sizeof(int) * descriptors.size());
  }
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(count);
}

}  // namespace grapevine::shm
