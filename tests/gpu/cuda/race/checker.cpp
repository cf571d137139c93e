#include "tests/gpu/cuda/race/checker.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <new>
#include <sstream>
#include <stdexcept>

namespace racecheck {
namespace {

// Bits of Who, from the lowest.
constexpr unsigned kTimeBits = 18, kThreadBits = 10, kBlockBits = 16, kLaunchBits = 20;
constexpr unsigned kBlockShift = kTimeBits + kThreadBits, kLaunchShift = kBlockShift + kBlockBits;
static_assert(kLaunchShift + kLaunchBits == 64);

template <unsigned kBits>
constexpr std::uint32_t kMost = (std::uint32_t{1} << kBits) - 1;

// Bits of Cell::other_code beside the code, or the group's number.
constexpr std::uint32_t kIsGroup = 1U << 31, kIsAtomic = 1U << 30;
constexpr std::uint32_t kNoGroup = 0xffffffffU;

constexpr std::size_t kMostSharedBytes = 48 << 10;
constexpr unsigned kPoison = 0xff;  // as a float, NaN

std::uint32_t time_of(std::uint64_t who) { return who & kMost<kTimeBits>; }
std::uint32_t thread_of(std::uint64_t who) { return (who >> kTimeBits) & kMost<kThreadBits>; }
std::uint32_t block_of(std::uint64_t who) { return (who >> kBlockShift) & kMost<kBlockBits>; }

std::uint32_t code_of(std::uintptr_t return_address) {
  return static_cast<std::uint32_t>(return_address - load_bias()) & (kIsAtomic - 1);
}
std::uintptr_t call_at(std::uint32_t code) { return load_bias() + code - 1; }

void check_limit(std::uint32_t value, std::uint32_t most, const char* what) {
  if (value > most)
    throw std::logic_error("the race checker counts at most " + std::to_string(most) + " " + what);
}

}  // namespace

// ---- regions

void Checker::Region::make_cells() {
  const std::size_t count = ((end - begin - 1) >> shift) + 1;
  cells.reset(static_cast<Cell*>(std::calloc(count, sizeof(Cell))));
  if (cells == nullptr) throw std::bad_alloc();
}

void Checker::split_words(Region& region) {
  const auto words = std::move(region.cells);
  region.shift = 0;
  region.make_cells();
  for (std::uintptr_t byte = 0; byte < region.end - region.begin; ++byte) {
    Cell& cell = region.cells[byte] = words[byte / 4];
    // Each byte's groups grow by themselves.
    if ((cell.other_code & kIsGroup) != 0 && is_live(cell.other, region))
      cell.other_code = copy_groups(cell.other_code & ~kIsGroup) | kIsGroup;
  }
}

Checker& Checker::instance() {
  static Checker only;
  return only;
}

Checker::Checker() {
  emulation::observer = this;
  const auto variables = shared_variables();
  if (variables.empty()) return;
  std::uintptr_t end = 0;
  shared_begin_ = ~std::uintptr_t{0};
  for (const Variable& variable : variables) {
    shared_begin_ = std::min(shared_begin_, variable.begin);
    end = std::max(end, variable.begin + variable.bytes);
  }
  shared_index_.resize(end - shared_begin_);
  for (const Variable& variable : variables) {
    Region region;
    region.begin = variable.begin;
    region.end = variable.begin + variable.bytes;
    region.is_shared = true;
    region.shift = variable.bytes % 4 == 0 && variable.begin % 4 == 0 ? 2 : 0;
    region.name = variable.name;
    region.make_cells();
    shared_.push_back(std::move(region));
    const auto first = shared_index_.begin() + (variable.begin - shared_begin_);
    std::fill(first, first + variable.bytes, static_cast<std::uint16_t>(shared_.size()));
  }
}

Checker::Region* Checker::shared_region(std::uintptr_t address) {
  const std::uint16_t index = shared_index_[address - shared_begin_];
  return index == 0 ? nullptr : &shared_[index - 1];
}

Checker::Region* Checker::allocated_region(std::uintptr_t address) {
  const auto allocation = emulation::allocation_of(address, 1);
  if (!allocation) return nullptr;
  Region& region = allocated_[allocation->begin];
  if (region.cells == nullptr) {
    region.begin = allocation->begin;
    region.end = allocation->begin + allocation->bytes;
    region.make_cells();
  }
  recent_[next_recent_++ % recent_.size()] = &region;
  return &region;
}

Checker::Region* Checker::region_of(std::uintptr_t address) {
  if (address - shared_begin_ < shared_index_.size()) return shared_region(address);
  for (Region* const region : recent_)
    if (region != nullptr && address - region->begin < region->end - region->begin) return region;
  return allocated_region(address);
}

void Checker::freed(const emulation::Allocation& allocation) {
  recent_.fill(nullptr);
  allocated_.erase(allocation.begin);
}

// ---- accesses

void Checker::access(std::uintptr_t address, std::size_t bytes, Kind kind,
                     std::uintptr_t return_address) {
  const std::uint32_t code = code_of(return_address);
  for (const dim3* const builtin : {&threadIdx, &blockIdx, &blockDim, &gridDim})
    if (address - reinterpret_cast<std::uintptr_t>(builtin) < sizeof(dim3)) return;
  Region* const region = region_of(address);
  if (region == nullptr || bytes > region->end - address) illegal(address, bytes, kind, code);
  if (region->shift > 0 && (address % 4 != 0 || bytes % 4 != 0)) split_words(*region);
  region->used_by_launch = launches_;
  const std::uintptr_t unit = std::uintptr_t{1} << region->shift;
  bool written = false;
  for (std::uintptr_t at = address; at < address + bytes; at += unit)
    written |=
        check_cell(region->cells[(at - region->begin) >> region->shift], *region, at, kind, code);
  // A structure may be read as a whole: its padding need not be written.
  if (region->is_shared && kind != Kind::write && !written && told_.insert({0, code}).second)
    unwritten_.push_back(
        {region, {pack(launches_, block_, threadIdx.x, threads_[threadIdx.x].time), code, kind}});
}

void Checker::host_access(std::uintptr_t address, std::size_t bytes, Kind kind,
                          std::uintptr_t return_address) {
  const std::uint32_t code = code_of(return_address);
  if (!emulation::allocation_of(address, 1) || !told_.insert({0, code}).second) return;
  add_finding(Finding::What::host_access,
              std::string("the host ") + (kind == Kind::read ? "reads " : "writes ") +
                  std::to_string(bytes) + " bytes at " + emulation::describe(address) + ": " +
                  line_of(call_at(code)));
}

void Checker::illegal(std::uintptr_t address, std::size_t bytes, Kind kind, std::uint32_t code) {
  illegal_ = {address,
              bytes,
              {pack(launches_, block_, threadIdx.x, threads_[threadIdx.x].time), code, kind}};
  emulation::abandon_launch();
}

void Checker::atomic(const void* address, std::size_t bytes, const void* return_address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  access(at, bytes, Kind::atomic, reinterpret_cast<std::uintptr_t>(return_address));
  Thread& self = threads_[threadIdx.x];
  const bool in_shared = at - shared_begin_ < shared_index_.size();
  auto& released = in_shared ? released_in_block_ : released_;
  const auto it = released.find(at);
  if (it != released.end() && it->second != nullptr) {
    self.seen = join(self.seen, it->second);
    clocks_differ_ = true;
  }
  if (self.fenced != nullptr) {
    auto& clock = released[at];
    clock = join(clock, self.fenced);
  }
}

// ---- what happened before

Checker::Who Checker::pack(std::uint32_t launch, std::uint32_t block, std::uint32_t thread,
                           std::uint32_t time) {
  return std::uint64_t{launch} << kLaunchShift | std::uint64_t{block} << kBlockShift |
         std::uint64_t{thread} << kTimeBits | time;
}

bool Checker::happened_before(std::uint32_t block, std::uint32_t thread, std::uint32_t time) const {
  const std::uint32_t self = threadIdx.x;
  if (block == block_) {
    if (thread == self || time < barrier_time_) return true;
    const std::uint32_t warp = self / emulation::kLanes;
    if (thread / emulation::kLanes == warp && time < warp_times_[warp]) return true;
  }
  return knows(threads_[self].known, block, thread, time);
}

bool Checker::happened_before(Who who) const {
  return happened_before(block_of(who), thread_of(who), time_of(who));
}

// Whether an access was to the same memory, in this launch: each block has shared memory of its
// own.
bool Checker::is_live(Who who, const Region& region) const {
  const unsigned shift = region.is_shared ? kBlockShift : kLaunchShift;
  return who >> shift == pack(launches_, block_, 0, 0) >> shift;
}

bool Checker::check_cell(Cell& cell, const Region& region, std::uintptr_t address, Kind kind,
                         std::uint32_t code) {
  const Who self = pack(launches_, block_, threadIdx.x, threads_[threadIdx.x].time);
  const bool written = is_live(cell.write, region);
  if (written && !happened_before(cell.write))
    tell_race(region, address, {cell.write, cell.write_code, Kind::write}, {self, code, kind});
  if (is_live(cell.other, region)) check_others(cell, region, address, kind, code);
  if (kind == Kind::write) {
    cell = {self, 0, code, 0};
  } else {
    add_other(cell, region, kind, code);
  }
  return written;
}

void Checker::check_others(const Cell& cell, const Region& region, std::uintptr_t address,
                           Kind kind, std::uint32_t code) {
  const Who self = pack(launches_, block_, threadIdx.x, threads_[threadIdx.x].time);
  if ((cell.other_code & kIsGroup) == 0) {
    const Kind other = (cell.other_code & kIsAtomic) != 0 ? Kind::atomic : Kind::read;
    if (kind != other && !happened_before(cell.other))
      tell_race(region, address, {cell.other, cell.other_code & ~kIsAtomic, other},
                {self, code, kind});
    return;
  }
  for (std::uint32_t at = cell.other_code & ~kIsGroup; at != kNoGroup; at = groups_[at].next) {
    const Group& group = groups_[at];
    if (kind == group.kind || (group.block == block_ && group.time < barrier_time_)) continue;
    for (std::uint32_t thread = 0; thread < group.threads.size() * 64; ++thread) {
      if ((group.threads[thread / 64] >> (thread % 64) & 1) == 0 ||
          happened_before(group.block, thread, group.time))
        continue;
      tell_race(region, address,
                {pack(launches_, group.block, thread, group.time), group.code, group.kind},
                {self, code, kind});
      return;
    }
  }
}

// REQUIRES: kind is not write.
void Checker::add_other(Cell& cell, const Region& region, Kind kind, std::uint32_t code) {
  const Who self = pack(launches_, block_, threadIdx.x, threads_[threadIdx.x].time);
  const std::uint32_t mark = kind == Kind::atomic ? kIsAtomic : 0;
  std::uint32_t head = kNoGroup;
  if (is_live(cell.other, region)) {
    if ((cell.other_code & kIsGroup) != 0) {
      head = cell.other_code & ~kIsGroup;
    } else {
      // What races with the earlier one of two of a kind also races with the later.
      const bool needless = (cell.other_code & kIsAtomic) == mark && happened_before(cell.other);
      if (!needless)
        head = add_group(kNoGroup, (cell.other_code & kIsAtomic) != 0 ? Kind::atomic : Kind::read,
                         cell.other, cell.other_code & ~kIsAtomic);
    }
  }
  if (head == kNoGroup)
    cell.other_code = code | mark;
  else
    cell.other_code = add_group(head, kind, self, code) | kIsGroup;
  cell.other = self;
}

std::uint32_t Checker::copy_groups(std::uint32_t head) {
  std::uint32_t copy = kNoGroup;
  for (std::uint32_t at = head; at != kNoGroup; at = groups_[at].next) {
    Group group = groups_[at];
    group.next = copy;
    copy = static_cast<std::uint32_t>(groups_.size());
    groups_.push_back(group);
  }
  return copy;
}

// Adds to the group of the same time, or to one that its block's last barrier has made needless.
std::uint32_t Checker::add_group(std::uint32_t head, Kind kind, Who who, std::uint32_t code) {
  const std::uint32_t block = block_of(who), time = time_of(who), thread = thread_of(who);
  for (std::uint32_t at = head; at != kNoGroup; at = groups_[at].next) {
    Group& group = groups_[at];
    if (group.kind != kind || group.block != block) continue;
    if (block == block_ && group.time < barrier_time_ && group.time != time) {
      group.time = time;
      group.code = code;
      group.threads.fill(0);
    }
    if (group.time != time) continue;
    group.threads[thread / 64] |= std::uint64_t{1} << (thread % 64);
    return head;
  }
  Group group{block, time, code, head, kind, {}};
  group.threads[thread / 64] |= std::uint64_t{1} << (thread % 64);
  groups_.push_back(group);
  check_limit(static_cast<std::uint32_t>(groups_.size()), kIsGroup - 2, "groups of accesses");
  return static_cast<std::uint32_t>(groups_.size() - 1);
}

void Checker::tell_race(const Region& region, std::uintptr_t address, const Side& first,
                        const Side& second) {
  if (races_.size() < kMostFindings && told_.insert(std::minmax(first.code, second.code)).second)
    races_.push_back({first, second, &region, address});
}

// ---- what orders

void Checker::launch_begins(const emulation::Launch& launch) {
  launch_ = launch;
  ++launches_;
  check_limit(launches_, kMost<kLaunchBits>, "launches");
  check_limit(launch.blocks - 1, kMost<kBlockBits>, "blocks");
  groups_.clear();
  released_.clear();
  races_.clear();
  unwritten_.clear();
  told_.clear();
}

void Checker::block_begins(std::uint32_t block) {
  block_ = block;
  barrier_time_ = 0;
  warp_times_.fill(0);
  threads_.assign(launch_.threads, Thread{});
  released_in_block_.clear();
  clocks_differ_ = false;
  for (const Region& region : shared_)
    std::fill_n(reinterpret_cast<unsigned char*>(region.begin), region.end - region.begin, kPoison);
}

void Checker::fence() {
  const std::uint32_t index = threadIdx.x, warp = index / emulation::kLanes;
  Thread& self = threads_[index];
  self.known = join(self.known, self.seen);
  self.seen = nullptr;
  check_limit(++self.time, kMost<kTimeBits>, "fences and barriers of a thread");
  auto own = std::make_shared<Times>(threads_.size(), barrier_time_);
  const std::size_t first = warp * emulation::kLanes;
  for (std::size_t i = first; i < std::min(first + emulation::kLanes, own->size()); ++i)
    (*own)[i] = std::max((*own)[i], warp_times_[warp]);
  (*own)[index] = self.time;
  std::map<std::uint32_t, std::shared_ptr<const Times>> here{{block_, own}};
  self.fenced = join(self.known, std::make_shared<decltype(here)>(std::move(here)));
  clocks_differ_ = true;
}

void Checker::join_threads(unsigned first, unsigned last) {
  Thread all{};
  for (unsigned i = first; i < last; ++i) {
    all.known = join(all.known, threads_[i].known);
    all.fenced = join(all.fenced, threads_[i].fenced);
    all.seen = join(all.seen, threads_[i].seen);
  }
  for (unsigned i = first; i < last; ++i) {
    all.time = threads_[i].time;
    threads_[i] = all;
  }
}

void Checker::barrier_opens(unsigned first, unsigned last) {
  std::uint32_t time = 0;
  for (unsigned i = first; i < last; ++i) time = std::max(time, threads_[i].time);
  check_limit(++time, kMost<kTimeBits>, "fences and barriers of a thread");
  if (clocks_differ_) join_threads(first, last);
  for (unsigned i = first; i < last; ++i) threads_[i].time = time;
  const bool is_block = first == 0 && last == threads_.size();
  if (is_block) {
    barrier_time_ = time;
    clocks_differ_ = false;
  } else {
    warp_times_[first / emulation::kLanes] = time;
  }
}

// ---- reports

void Checker::launch_ends() {
  for (const Race& race : races_) report(race);
  for (const auto& [region, side] : unwritten_)
    add_finding(Finding::What::unwritten,
                "shared memory that no thread of the block has written, " + region->name + "\n  " +
                    describe(side));
  std::size_t shared_bytes = 0;
  for (const Region& region : shared_)
    if (region.used_by_launch == launches_) shared_bytes += region.end - region.begin;
  if (shared_bytes > kMostSharedBytes)
    add_finding(Finding::What::shared_size,
                std::to_string(shared_bytes) + " bytes of shared memory: a block has " +
                    std::to_string(kMostSharedBytes) + " without asking for more");
}

std::string Checker::why_abandoned() {
  launch_ends();  // tells what was found before the access
  return kernel_name() + ": " + describe(illegal_.side) + ": " + std::to_string(illegal_.bytes) +
         " bytes at " + emulation::describe(illegal_.address);
}

std::vector<Finding> Checker::take_findings() { return std::exchange(findings_, {}); }

std::string Checker::kernel_name() const {
  return function_at(reinterpret_cast<std::uintptr_t>(launch_.kernel));
}

std::string Checker::describe(const Side& side) const {
  static constexpr const char* kNames[] = {"read", "write", "atomic"};
  std::ostringstream text;
  text << kNames[static_cast<int>(side.kind)] << " by block " << block_of(side.who) << ", thread "
       << thread_of(side.who) << " at " << line_of(call_at(side.code));
  return text.str();
}

void Checker::report(const Race& race) {
  std::ostringstream text;
  const std::uintptr_t offset = race.address - race.region->begin;
  if (race.region->is_shared)
    text << "a race in shared memory, byte " << offset << " of " << race.region->name;
  else
    text << "a race in global memory at 0x" << std::hex << race.address << std::dec << ", byte "
         << offset << " of " << race.region->end - race.region->begin << " that cudaMalloc gave";
  text << "\n  " << describe(race.first) << "\n  " << describe(race.second);
  add_finding(Finding::What::race, text.str());
}

void Checker::add_finding(Finding::What what, const std::string& text) {
  if (what == Finding::What::host_access) return findings_.push_back({what, "", text});
  const std::string kernel = kernel_name();
  findings_.push_back({what, kernel,
                       text + "\n  in " + kernel + ", " + std::to_string(launch_.blocks) +
                           " blocks of " + std::to_string(launch_.threads) + " threads"});
}

}  // namespace racecheck
