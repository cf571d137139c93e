// Waits for several descriptors, and for other threads of this process.
#pragma once
#include <vector>

#include "messages/expected.hpp"
#include "net/file_descriptor.hpp"

namespace grapevine::shm {

class Poller {
 public:
  // Errors (io).
  static Expected<Poller> make();

  // Readable or closed counts. False: the system refuses.
  bool add(int descriptor) const;
  void remove(int descriptor) const;
  // The descriptors with an event; at once where there are some, else after at most `timeout_ms`,
  // or when another thread calls wake().
  std::vector<int> wait(int timeout_ms) const;
  void wake() const;

 private:
  Poller(FileDescriptor events, FileDescriptor bell)
      : events_(std::move(events)), bell_(std::move(bell)) {}

  FileDescriptor events_;
  FileDescriptor bell_;
};

}  // namespace grapevine::shm
