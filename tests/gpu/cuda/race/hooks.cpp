// What the compiler calls in units built with -fsanitize=thread: each access to memory that others
// may see. Instead of ThreadSanitizer's library, which knows threads but not CUDA's.
// NOLINTBEGIN(readability-identifier-naming): the names are the compiler's
#include <cstddef>
#include <cstdint>

#include "tests/gpu/cuda/race/checker.hpp"

namespace {

// The compiler's copies of inline functions are merged with those of other units: the checker and
// the emulation may end up here, too.
bool is_busy = false;

void told_on_host(std::uintptr_t address, std::size_t bytes, racecheck::Kind kind,
                  std::uintptr_t code) {
  if (is_busy) return;
  is_busy = true;
  racecheck::Checker::instance().host_access(address, bytes, kind, code);
  is_busy = false;
}

inline void told(const volatile void* pointer, std::size_t bytes, racecheck::Kind kind,
                 const void* return_address) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto code = reinterpret_cast<std::uintptr_t>(return_address);
  const auto* const stack = emulation::current_stack;
  if (stack == nullptr) return told_on_host(address, bytes, kind, code);
  if (address - reinterpret_cast<std::uintptr_t>(stack) < emulation::kStackBytes) return;
  const emulation::InRuntime runtime;
  racecheck::Checker::instance().access(address, bytes, kind, code);
}

}  // namespace

#define TELL(bytes, kind) told(address, bytes, racecheck::Kind::kind, __builtin_return_address(0))

#define ACCESSES_OF(bytes)                                                  \
  void __tsan_read##bytes(void* address) { TELL(bytes, read); }             \
  void __tsan_write##bytes(void* address) { TELL(bytes, write); }           \
  void __tsan_unaligned_read##bytes(void* address) { TELL(bytes, read); }   \
  void __tsan_unaligned_write##bytes(void* address) { TELL(bytes, write); } \
  void __tsan_volatile_read##bytes(void* address) { TELL(bytes, read); }    \
  void __tsan_volatile_write##bytes(void* address) { TELL(bytes, write); }

#define COMPARE_EXCHANGE(bits, Int, strength)                                            \
  int __tsan_atomic##bits##_compare_exchange_##strength(volatile Int* at, Int* expected, \
                                                        Int value, int, int) {           \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,     \
                                       __ATOMIC_SEQ_CST);                                \
  }

// C++'s atomics are the host's; device code has its own functions.
#define ATOMICS_OF(bits, Int)                                             \
  Int __tsan_atomic##bits##_load(const volatile Int* at, int) {           \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                         \
  }                                                                       \
  void __tsan_atomic##bits##_store(volatile Int* at, Int value, int) {    \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                        \
  }                                                                       \
  Int __tsan_atomic##bits##_exchange(volatile Int* at, Int value, int) {  \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);              \
  }                                                                       \
  Int __tsan_atomic##bits##_fetch_add(volatile Int* at, Int value, int) { \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);               \
  }                                                                       \
  Int __tsan_atomic##bits##_fetch_sub(volatile Int* at, Int value, int) { \
    return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);               \
  }                                                                       \
  COMPARE_EXCHANGE(bits, Int, strong)                                     \
  COMPARE_EXCHANGE(bits, Int, weak)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void* address) { TELL(sizeof(void*), read); }
void __tsan_vptr_update(void* address, void*) { TELL(sizeof(void*), write); }
void __tsan_read_range(void* address, std::size_t bytes) { TELL(bytes, read); }
void __tsan_write_range(void* address, std::size_t bytes) { TELL(bytes, write); }

ACCESSES_OF(1)
ACCESSES_OF(2)
ACCESSES_OF(4)
ACCESSES_OF(8)
ACCESSES_OF(16)

ATOMICS_OF(8, std::uint8_t)
ATOMICS_OF(16, std::uint16_t)
ATOMICS_OF(32, std::uint32_t)
ATOMICS_OF(64, std::uint64_t)
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
