// Device memory: what cudaMalloc gave, and what it took back.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "tests/gpu/cuda/emulation/emulation.hpp"

namespace emulation {
namespace {

// Ranges by their first byte.
using Ranges = std::map<std::uintptr_t, std::size_t>;

struct Memory {
  std::mutex mutex;
  Ranges live, freed;
  cudaError_t failed_with = cudaSuccess;
  std::string why;
};
Memory& memory() {
  static Memory only;
  return only;
}

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

// The range that begins at or before the address.
Ranges::const_iterator range_before(const Ranges& ranges, std::uintptr_t address) {
  auto it = ranges.upper_bound(address);
  return it == ranges.begin() ? ranges.end() : std::prev(it);
}

bool holds(const Ranges& ranges, std::uintptr_t address, std::size_t bytes) {
  const auto it = range_before(ranges, address);
  return it != ranges.end() && address - it->first <= it->second &&
         bytes <= it->second - (address - it->first);
}

bool overlaps(const Ranges& ranges, std::uintptr_t address, std::size_t bytes) {
  const auto it = range_before(ranges, address + (bytes > 0 ? bytes - 1 : 0));
  return it != ranges.end() && it->first + it->second > address;
}

// REQUIRES: the lock.
std::string describe_locked(std::uintptr_t address) {
  std::ostringstream text;
  text << "0x" << std::hex << address << std::dec << ", ";
  if (const auto it = range_before(memory().live, address);
      it != memory().live.end() && address - it->first <= it->second + 4096) {
    text << "byte " << address - it->first << " of " << it->second << " that cudaMalloc gave";
  } else if (overlaps(memory().freed, address, 1)) {
    text << "memory that cudaFree took back";
  } else {
    text << "host memory";
  }
  return text.str();
}

// REQUIRES: the lock.
cudaError_t fail_locked(cudaError_t code, std::string why) {
  memory().why = std::move(why);
  return memory().failed_with = code;
}

// Whether a copy's or a fill's range is the device's as a whole.
cudaError_t check_device_range(const char* call, const char* role, const void* address,
                               std::size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  if (bytes == 0 || holds(memory().live, number_of(address), bytes)) return cudaSuccess;
  std::ostringstream why;
  why << call << ": the " << bytes << " bytes " << role << " "
      << describe_locked(number_of(address)) << " are not memory of the device";
  return fail_locked(cudaErrorInvalidValue, why.str());
}

cudaError_t check_host_range(const char* call, const char* role, const void* address,
                             std::size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  if (bytes == 0 || !overlaps(memory().live, number_of(address), bytes)) return cudaSuccess;
  std::ostringstream why;
  why << call << ": the " << bytes << " bytes " << role << " "
      << describe_locked(number_of(address)) << " are not memory of the host";
  return fail_locked(cudaErrorInvalidValue, why.str());
}

}  // namespace

std::optional<Allocation> allocation_of(std::uintptr_t address, std::size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  if (!holds(memory().live, address, bytes)) return std::nullopt;
  const auto it = range_before(memory().live, address);
  return Allocation{it->first, it->second};
}

std::string describe(std::uintptr_t address) {
  const std::lock_guard lock(memory().mutex);
  return describe_locked(address);
}

cudaError_t fail(cudaError_t code, std::string why) {
  const std::lock_guard lock(memory().mutex);
  return fail_locked(code, std::move(why));
}

}  // namespace emulation

using emulation::memory;
using emulation::number_of;

const char* cudaGetErrorString(cudaError_t code) {
  const std::lock_guard lock(memory().mutex);
  const bool known = code != cudaSuccess && code == memory().failed_with;
  return known ? memory().why.c_str() : "emulated";
}

cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  *to = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*to == nullptr) return cudaErrorMemoryAllocation;
  const std::lock_guard lock(memory().mutex);
  memory().live[number_of(*to)] = bytes;
  // The host's allocator gives freed memory out again.
  auto& freed = memory().freed;
  for (auto it = freed.lower_bound(number_of(*to)); it != freed.end();)
    it = it->first < number_of(*to) + bytes ? freed.erase(it) : std::next(it);
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  emulation::Allocation allocation;
  {
    const std::lock_guard lock(memory().mutex);
    const auto it = memory().live.find(number_of(address));
    if (it == memory().live.end())
      return emulation::fail_locked(cudaErrorInvalidValue,
                                    "cudaFree: " + emulation::describe_locked(number_of(address)) +
                                        " does not begin an allocation");
    allocation = {it->first, it->second};
    memory().freed[it->first] = it->second;
    memory().live.erase(it);
  }
  if (emulation::observer != nullptr) emulation::observer->freed(allocation);
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  const bool down = kind == cudaMemcpyDeviceToHost;
  if (const auto code = emulation::check_device_range("cudaMemcpyAsync", down ? "from" : "to",
                                                      down ? from : to, bytes);
      code != cudaSuccess)
    return code;
  if (const auto code = emulation::check_host_range("cudaMemcpyAsync", down ? "to" : "from",
                                                    down ? to : from, bytes);
      code != cudaSuccess)
    return code;
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t) {
  const auto code = emulation::check_device_range("cudaMemsetAsync", "at", to, bytes);
  if (code == cudaSuccess && bytes > 0) std::memset(to, byte, bytes);
  return code;
}
