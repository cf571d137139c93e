#include "tests/gpu/fake_device/memory.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "messages/check.hpp"
#include "tests/gpu/fake_device/graph.hpp"

namespace grapevine::fake {
namespace {

constexpr std::size_t kArena = std::size_t{1} << 32;  // of addresses; pages come with their use
constexpr std::size_t kUnit = 512;                    // as CUDA's allocator rounds
constexpr std::size_t kPage = 4096;

std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return std::max<std::size_t>(1, (bytes + unit - 1) / unit) * unit;
}

// One file, mapped twice, and its free pieces by size. Not thread-safe.
class Arena {
 public:
  Arena(const char* name, int protection, std::size_t unit) : unit_(unit) {
    const int file = memfd_create(name, MFD_CLOEXEC);
    GRAPEVINE_CHECK(file >= 0 && ftruncate(file, kArena) == 0, "no memory for ", name);
    shown_ = map(file, protection);
    alias_ = map(file, PROT_READ | PROT_WRITE);
    close(file);
  }
  char* take(std::size_t bytes) {
    auto& free = free_[rounded(bytes, unit_)];
    char* piece = nullptr;
    if (!free.empty()) {
      piece = free.back();
      free.pop_back();
    } else {
      piece = shown_ + end_;
      end_ += rounded(bytes, unit_);
      GRAPEVINE_CHECK(end_ <= kArena, "the fake device is full");
    }
    std::memset(alias(piece), 0xff, rounded(bytes, unit_));
    return piece;
  }
  void give(char* piece, std::size_t bytes) { free_[rounded(bytes, unit_)].push_back(piece); }
  bool has(const void* shown) const { return shown >= shown_ && shown < shown_ + kArena; }
  char* alias(const void* shown) const {
    return alias_ + (static_cast<const char*>(shown) - shown_);
  }

 private:
  static char* map(int file, int protection) {
    void* memory = mmap(nullptr, kArena, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    GRAPEVINE_CHECK(memory != MAP_FAILED, "no addresses for the fake device");
    return static_cast<char*>(memory);
  }
  const std::size_t unit_;
  char* shown_ = nullptr;
  char* alias_ = nullptr;
  std::size_t end_ = 0;
  std::map<std::size_t, std::vector<char*>> free_;
};

struct PinnedUse {
  std::string work;
  std::size_t stream = 0;
  std::uint64_t time = 0;
  bool writes = false;
};
struct PinnedBlock {
  std::size_t bytes = 0;
  std::vector<PinnedUse> uses;  // for which the host has not waited
};

struct Memory {
  std::mutex mutex;
  Arena device{"fake_device", PROT_NONE, kUnit};
  Arena pinned{"fake_pinned", PROT_READ | PROT_WRITE, kPage};
  std::map<const char*, PinnedBlock> pinned_blocks;  // by address
  struct sigaction before = {};
};

void on_fault(int number, siginfo_t* info, void* context);

Memory& memory() {
  static Memory* const instance = [] {
    auto* made = new Memory;
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &made->before);
    return made;
  }();
  return *instance;
}

// The block around an address; end() where there is none. Called under the mutex.
auto block_around(Memory& m, const void* address) {
  auto found = m.pinned_blocks.upper_bound(static_cast<const char*>(address));
  if (found == m.pinned_blocks.begin()) return m.pinned_blocks.end();
  --found;
  return static_cast<const char*>(address) < found->first + rounded(found->second.bytes, kPage)
             ? found
             : m.pinned_blocks.end();
}

void protect(const char* begin, const PinnedBlock& block) {
  const bool written = std::any_of(block.uses.begin(), block.uses.end(),
                                   [](const PinnedUse& use) { return use.writes; });
  const int access = block.uses.empty() ? PROT_READ | PROT_WRITE : written ? PROT_NONE : PROT_READ;
  mprotect(const_cast<char*>(begin), rounded(block.bytes, kPage), access);
}

// Forgets what the host has waited for. Called under the mutex.
void forget_known(const char* begin, PinnedBlock& block) {
  auto& uses = block.uses;
  const auto over = std::remove_if(uses.begin(), uses.end(), [](const PinnedUse& use) {
    return order().host_knows(use.stream, use.time);
  });
  if (over == uses.end()) return;
  uses.erase(over, uses.end());
  protect(begin, block);
}

// The thread that faults works on its own memory, so that it holds none of the locks here. Another
// thread may have waited by now: for a moment pages are still closed that the host may touch.
void on_fault(int number, siginfo_t* info, void* context) {
  Memory& m = memory();
  {
    const std::lock_guard<std::mutex> lock(m.mutex);
    const auto found = block_around(m, info->si_addr);
    if (found != m.pinned_blocks.end()) {
      auto& [begin, block] = *found;
      forget_known(begin, block);
      if (block.uses.empty()) return;
      order().violation("the host touches pinned memory before it has waited for '" +
                        block.uses.back().work + "'");
      block.uses.clear();
      protect(begin, block);
      return;
    }
    if (m.device.has(info->si_addr))
      std::fputs("the host touched memory of the fake device\n", stderr);
  }
  if (m.before.sa_flags & SA_SIGINFO) return m.before.sa_sigaction(number, info, context);
  signal(SIGSEGV, SIG_DFL);  // the access is repeated, and ends the process
}

void unpin(void* address) {
  Memory& m = memory();
  const std::lock_guard<std::mutex> lock(m.mutex);
  const auto found = m.pinned_blocks.find(static_cast<const char*>(address));
  for (const PinnedUse& use : found->second.uses)
    if (!order().host_knows(use.stream, use.time))
      order().violation("pinned memory ends before the host has waited for '" + use.work + "'");
  found->second.uses.clear();
  protect(found->first, found->second);
  m.pinned.give(static_cast<char*>(address), found->second.bytes);
  m.pinned_blocks.erase(found);
}

}  // namespace

Block* allocate(std::size_t bytes, int device, std::optional<std::size_t> stream) {
  auto* block = new Block;
  block->device = device;
  block->bytes = bytes;
  block->history.bytes = bytes;
  {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    block->shown = memory().device.take(bytes);
  }
  order().allocated(block->history, stream);
  return block;
}

void release(Block* block) {
  if (GraphMemory::keeps(block)) return;
  order().freed(block->history);
  {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    memory().device.give(block->shown, block->bytes);
  }
  delete block;
}

char* alias_of(const void* shown) { return memory().device.alias(shown); }

std::shared_ptr<void> pinned(std::size_t bytes) {
  Memory& m = memory();
  const std::lock_guard<std::mutex> lock(m.mutex);
  char* const address = m.pinned.take(bytes);
  m.pinned_blocks[address].bytes = bytes;
  return {address, unpin};
}

bool is_pinned(const void* address) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  return memory().pinned.has(address);
}

char* pinned_alias(const void* address) { return memory().pinned.alias(address); }

void use_pinned(const void* address, const std::string& work, bool writes, std::size_t stream,
                std::uint64_t time) {
  Memory& m = memory();
  const std::lock_guard<std::mutex> lock(m.mutex);
  const auto found = block_around(m, address);
  GRAPEVINE_CHECK(found != m.pinned_blocks.end(), "a copy from or to pinned memory that has ended");
  found->second.uses.push_back({work, stream, time, writes});
  protect(found->first, found->second);
}

void open_pinned() {
  Memory& m = memory();
  const std::lock_guard<std::mutex> lock(m.mutex);
  for (auto& [address, block] : m.pinned_blocks) forget_known(address, block);
}

}  // namespace grapevine::fake
