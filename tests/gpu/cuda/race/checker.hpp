// Whether the accesses of a kernel's threads are ordered as CUDA requires it.
//
// Two accesses to one byte of which one is a write race unless one happens before the other, or
// both are atomic. What happens before what:
//   - the accesses of a thread, in its order; all of a launch before all of the next;
//   - __syncthreads: those of the block's threads before it, before those after it; __syncwarp: the
//     same for the warp. Shuffles and votes exchange values and order no memory;
//   - between threads that meet at no barrier: what is before a __threadfence that is before an
//     atomic is before what follows a __threadfence after another atomic on the same address that
//     saw the first one's value. Before and after go through barriers here, too: one thread of a
//     block may fence, another one do the atomic.
// A volatile access is an ordinary one. Times are counted for each thread, from one barrier or
// fence to the next; vector clocks (clock.hpp) say what a thread knows of others'.
//
// The state of a byte is its last ordinary write and all reads and atomics since that no later one
// of the same kind makes needless, so that nothing depends on the order in which threads happened
// to run, but for the values that atomics return and what the kernel makes of them.
//
// Found besides: shared memory that is read before the block has written it, accesses to what is
// not the device's memory, is another thread's local memory or was freed, more than 48 KiB of
// shared memory, the host that touches device memory (in the units of kernels).
#pragma once
#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/gpu/cuda/emulation/emulation.hpp"
#include "tests/gpu/cuda/race/clock.hpp"
#include "tests/gpu/cuda/race/image.hpp"

namespace racecheck {

enum class Kind : std::uint8_t { read, write, atomic };

struct Finding {
  enum class What { race, unwritten, shared_size, host_access };
  What what;
  std::string kernel;  // the name of its function
  std::string text;    // all about it, for a person
};

class Checker final : public emulation::Observer {
 public:
  // Begins to observe the emulation. The one of this process, as the hooks of the compiler reach
  // it.
  static Checker& instance();

  // An access of the thread that runs, to what is not its stack. May end the launch: see
  // emulation::abandon_launch().
  void access(std::uintptr_t address, std::size_t bytes, Kind kind, std::uintptr_t return_address);
  // An access of the host.
  void host_access(std::uintptr_t address, std::size_t bytes, Kind kind,
                   std::uintptr_t return_address);

  // What was found since the last call, at most kMostFindings of a launch.
  std::vector<Finding> take_findings();

  void launch_begins(const emulation::Launch& launch) override;
  void block_begins(std::uint32_t block) override;
  void barrier_opens(unsigned first, unsigned last) override;
  void fence() override;
  void atomic(const void* address, std::size_t bytes, const void* return_address) override;
  void launch_ends() override;
  std::string why_abandoned() override;
  void freed(const emulation::Allocation& allocation) override;

 private:
  static constexpr std::size_t kMostFindings = 4;

  // Who did something when, in 64 bits: launch, block, thread, time. 0: nobody.
  using Who = std::uint64_t;

  // Of a word or a byte. `other` are the reads and atomics since the write: one of them, or the
  // last that joined a chain of groups.
  struct Cell {
    Who write, other;
    std::uint32_t write_code, other_code;
  };

  // Reads, or atomics, of threads of one block at one time.
  struct Group {
    std::uint32_t block, time, code, next;
    Kind kind;
    std::array<std::uint64_t, 16> threads;
  };

  struct FreeCells {
    void operator()(Cell* cells) const { std::free(cells); }
  };

  // An allocation or a shared variable: a cell for each word, or each byte once parts of words were
  // accessed.
  struct Region {
    std::uintptr_t begin = 0, end = 0;
    bool is_shared = false;
    unsigned shift = 2;
    std::unique_ptr<Cell[], FreeCells> cells;
    std::uint32_t used_by_launch = 0;
    std::string name;

    void make_cells();
  };

  struct Thread {
    std::uint32_t time;
    Clock known;   // happened before, besides what barriers of this block say
    Clock fenced;  // had happened before the last fence that happened before this
    Clock seen;    // released to an atomic that happened before this; known after a fence
  };

  struct Side {
    Who who;
    std::uint32_t code;
    Kind kind;
  };
  struct Race {
    Side first, second;
    const Region* region;
    std::uintptr_t address;
  };
  struct IllegalAccess {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    Side side{};
  };

  Checker();

  // ---- regions
  Region* region_of(std::uintptr_t address);
  Region* shared_region(std::uintptr_t address);
  Region* allocated_region(std::uintptr_t address);
  // One cell for each byte from here on.
  void split_words(Region& region);
  [[noreturn]] void illegal(std::uintptr_t address, std::size_t bytes, Kind kind,
                            std::uint32_t code);

  // ---- the rules
  static Who pack(std::uint32_t launch, std::uint32_t block, std::uint32_t thread,
                  std::uint32_t time);
  bool happened_before(std::uint32_t block, std::uint32_t thread, std::uint32_t time) const;
  bool happened_before(Who who) const;
  bool is_live(Who who, const Region& region) const;
  // Returns whether the cell had been written in this launch.
  bool check_cell(Cell& cell, const Region& region, std::uintptr_t address, Kind kind,
                  std::uint32_t code);
  void check_others(const Cell& cell, const Region& region, std::uintptr_t address, Kind kind,
                    std::uint32_t code);
  void add_other(Cell& cell, const Region& region, Kind kind, std::uint32_t code);
  std::uint32_t copy_groups(std::uint32_t head);
  std::uint32_t add_group(std::uint32_t head, Kind kind, Who who, std::uint32_t code);
  void tell_race(const Region& region, std::uintptr_t address, const Side& first,
                 const Side& second);
  void join_threads(unsigned first, unsigned last);

  // ---- reports; not on a kernel's stack
  std::string kernel_name() const;
  std::string describe(const Side& side) const;
  void report(const Race& race);
  void add_finding(Finding::What what, const std::string& text);

  // Constant after construction.
  std::vector<Region> shared_;
  std::uintptr_t shared_begin_ = 0;
  std::vector<std::uint16_t> shared_index_;  // by byte from shared_begin_; 0: none, else + 1

  // Of all launches.
  std::map<std::uintptr_t, Region> allocated_;
  std::array<Region*, 8> recent_{};
  std::size_t next_recent_ = 0;
  std::uint32_t launches_ = 0;
  std::vector<Finding> findings_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> told_;  // pairs of code, of this launch

  // Of this launch.
  emulation::Launch launch_;
  std::vector<Group> groups_;
  std::unordered_map<std::uintptr_t, Clock> released_;  // by address of an atomic
  std::vector<Race> races_;
  std::vector<std::pair<const Region*, Side>> unwritten_;
  IllegalAccess illegal_;

  // Of this block.
  std::uint32_t block_ = 0;
  std::vector<Thread> threads_;
  std::uint32_t barrier_time_ = 0;
  std::array<std::uint32_t, 32> warp_times_{};
  std::unordered_map<std::uintptr_t, Clock> released_in_block_;  // by atomics on shared memory
  bool clocks_differ_ = false;
};

}  // namespace racecheck
