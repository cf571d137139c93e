// Cuts the connections between two live processes, without root: for processes that this one has
// started, whose sockets it may therefore take (pidfd_getfd).
#pragma once
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "net/file_descriptor.hpp"

namespace grapevine {
namespace cluster_test {

// The sockets of a process, as descriptors of this one: of the same connections. Empty: none, or
// the system does not give them.
inline std::vector<FileDescriptor> sockets_of(pid_t process) {
  namespace fs = std::filesystem;
  std::vector<FileDescriptor> found;
  const FileDescriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator("/proc/" + std::to_string(process) + "/fd", ignored)) {
    if (fs::read_symlink(entry.path(), ignored).string().rfind("socket:", 0) != 0) continue;
    const int number = std::stoi(entry.path().filename().string());
    FileDescriptor socket(static_cast<int>(::syscall(SYS_pidfd_getfd, handle.get(), number, 0)));
    if (socket.get() >= 0) found.push_back(std::move(socket));
  }
  return found;
}

// One end of a connection of the Internet protocol, as the system has it. Empty: the socket has
// none.
inline std::string end_of(int socket, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (name(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return "";
  return std::string(reinterpret_cast<const char*>(&address), size);
}

// The process at the other end of a connection within the machine; 0: it is none.
inline pid_t peer_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family != AF_UNIX) return 0;
  ucred peer{};
  size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

// Ends all connections between the two, and says how many there were. Neither process is asked.
inline int cut_links(pid_t one, pid_t other) {
  std::vector<std::string> ends;
  for (const FileDescriptor& socket : sockets_of(other))
    ends.push_back(end_of(socket.get(), ::getsockname));
  int cut = 0;
  for (const FileDescriptor& socket : sockets_of(one)) {
    const std::string there = end_of(socket.get(), ::getpeername);
    const bool leads_there =
        peer_of(socket.get()) == other ||
        (!there.empty() && std::find(ends.begin(), ends.end(), there) != ends.end());
    if (leads_there && ::shutdown(socket.get(), SHUT_RDWR) == 0) ++cut;
  }
  return cut;
}

}  // namespace cluster_test
}  // namespace grapevine
