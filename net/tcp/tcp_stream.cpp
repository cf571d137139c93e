#include "net/tcp/tcp_stream.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace grapevine::tcp {
namespace {

std::size_t size_of(const iovec* parts, std::size_t count) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < count; ++i) size += parts[i].iov_len;
  return size;
}

// The result of a system call that should move `wanted` bytes.
Moved moved(ssize_t result, std::size_t wanted) {
  Moved moved;
  if (result >= 0) {
    moved.bytes = static_cast<std::size_t>(result);
    moved.blocked = moved.bytes < wanted;
  } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    moved.blocked = true;
  } else {
    moved.error = text_of_system_error(errno);
  }
  return moved;
}

}  // namespace

Stream::Stream(FileDescriptor socket) : socket_(std::move(socket)) {
  const int flags = ::fcntl(descriptor(), F_GETFL);
  ::fcntl(descriptor(), F_SETFL, flags | O_NONBLOCK);
  const int on = 1;
  ::setsockopt(descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void Stream::abort() { ::shutdown(descriptor(), SHUT_RDWR); }

Moved PlainStream::handshake(bool& /*wants_write*/) { return {}; }

Moved PlainStream::read(const iovec* parts, std::size_t count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);  // the system call writes to the parts alone
  message.msg_iovlen = count;
  const std::size_t wanted = size_of(parts, count);
  const ssize_t result = ::recvmsg(descriptor(), &message, 0);
  Moved read = moved(result, wanted);
  read.ended = result == 0 && wanted > 0;
  return read;
}

Moved PlainStream::write(const iovec* parts, std::size_t count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  return moved(::sendmsg(descriptor(), &message, MSG_NOSIGNAL), size_of(parts, count));
}

void PlainStream::finish_writing() { ::shutdown(descriptor(), SHUT_WR); }

std::unique_ptr<Stream> make_plain_stream(FileDescriptor socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

std::string text_of_system_error(int error) { return std::generic_category().message(error); }

}  // namespace grapevine::tcp
