#ifdef GRAPEVINE_UCX
#include "tests/net/ucx/failing_allocation.hpp"

#include <dlfcn.h>
#include <ucp/api/ucp.h>

#include <cstdlib>
#include <new>

namespace grapevine {

std::atomic<int> failing_allocation{0};
std::atomic<std::size_t> failing_size{0};

namespace {

thread_local bool inside_ucx = false;

}  // namespace
}  // namespace grapevine

// In front of the library's own, which it calls.
extern "C" unsigned ucp_worker_progress(ucp_worker_h worker) {
  static const auto library =
      reinterpret_cast<unsigned (*)(ucp_worker_h)>(::dlsym(RTLD_NEXT, "ucp_worker_progress"));
  grapevine::inside_ucx = true;
  const unsigned moved = library(worker);
  grapevine::inside_ucx = false;
  return moved;
}

#ifndef __SANITIZE_ADDRESS__  // which has functions of its own
void* operator new(std::size_t bytes) {
  using grapevine::failing_allocation;
  if (grapevine::inside_ucx && failing_allocation > 0 && --failing_allocation == 0)
    throw std::bad_alloc();
  std::size_t wanted = bytes;
  if (bytes > 0 && grapevine::failing_size.compare_exchange_strong(wanted, 0))
    throw std::bad_alloc();
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif
#endif
