#include "net/shm/shm_poller.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace grapevine::shm {

Expected<Poller> Poller::make() {
  FileDescriptor events(::epoll_create1(EPOLL_CLOEXEC));
  FileDescriptor bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const int ring = bell.get();
  Poller poller(std::move(events), std::move(bell));
  if (poller.events_.get() < 0 || ring < 0 || !poller.add(ring))
    return Error{Errc::io, std::generic_category().message(errno)};
  return poller;
}

bool Poller::add(int descriptor) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  return ::epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void Poller::remove(int descriptor) const {
  ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

std::vector<int> Poller::wait(int timeout_ms) const {
  std::array<epoll_event, 64> ready;
  const int count = ::epoll_wait(events_.get(), ready.data(), ready.size(), timeout_ms);
  std::vector<int> descriptors;
  for (int i = 0; i < count; ++i) {
    const int descriptor = ready[static_cast<std::size_t>(i)].data.fd;
    if (descriptor != bell_.get()) {
      descriptors.push_back(descriptor);
      continue;
    }
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t bytes = ::read(bell_.get(), &rings, sizeof rings);
  }
  return descriptors;
}

void Poller::wake() const {
  const std::uint64_t one = 1;
  // Can only fail where the counter is full: then it is readable anyway.
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
}

}  // namespace grapevine::shm
