// Bytes over a connected socket that never blocks.
#pragma once
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>

#include "net/file_descriptor.hpp"

namespace grapevine::tcp {

// The outcome of one call of a Stream.
struct Moved {
  std::size_t bytes = 0;
  bool blocked = false;   // no more can be moved now: wait for the socket
  bool ended = false;     // of a read: the other side sends no more
  std::string error;      // the connection is of no further use; empty: none
  bool is_final = false;  // of an error: another connection would end in the same way
};

// Owns the socket. One thread may read while another one writes.
class Stream {
 public:
  explicit Stream(FileDescriptor socket);
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int descriptor() const { return socket_.get(); }
  // Both directions, at once. On any thread, during a read or write, too.
  void abort();

  // Before the first read or write, until it is not blocked. `wants_write` of a blocked one: wait
  // until the socket can be written, else until it can be read.
  virtual Moved handshake(bool& wants_write) = 0;
  // Fills the parts in turn. Blocked where they were not filled.
  virtual Moved read(const iovec* parts, std::size_t count) = 0;
  // Takes bytes of the parts in turn. Blocked where not all were taken, or where bytes that were
  // taken wait for the socket: then another call must follow, with no parts if need be.
  virtual Moved write(const iovec* parts, std::size_t count) = 0;
  // The other side reads the end after all bytes that were written.
  virtual void finish_writing() = 0;

 private:
  const FileDescriptor socket_;
};

// Without encryption, and without a handshake of its own.
class PlainStream : public Stream {
 public:
  using Stream::Stream;

  Moved handshake(bool& wants_write) override;
  Moved read(const iovec* parts, std::size_t count) override;
  Moved write(const iovec* parts, std::size_t count) override;
  void finish_writing() override;
};

std::unique_ptr<Stream> make_plain_stream(FileDescriptor socket);

std::string text_of_system_error(int error);

}  // namespace grapevine::tcp
