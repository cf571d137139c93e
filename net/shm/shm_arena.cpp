#include "net/shm/shm_arena.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "messages/check.hpp"

namespace grapevine::shm {

namespace {

// A segment is larger than its first tensor by no more than this: its pages have memory at once.
constexpr std::uint64_t kMostAhead = std::uint64_t{64} << 20;

// Bytes of the machine, or of the control group of this process where that has fewer.
std::uint64_t memory_of_machine() {
  const auto physical = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::ifstream file("/sys/fs/cgroup/memory.max");
  std::uint64_t most = 0;
  return file >> most ? std::min(most, physical) : physical;
}

}  // namespace

// The memory of a tensor in an arena.
class ArenaMemory final : public TensorMemory {
 public:
  ArenaMemory(std::shared_ptr<Arena> arena, const BlockPlace& place, std::uint64_t bytes)
      : arena_(std::move(arena)), place_(place), bytes_(bytes) {}
  ~ArenaMemory() override { arena_->give_back(place_, bytes_); }
  // A tensor that is lent has a handle in a Lender, so that the last handle is never here.
  bool exclusive() const override { return true; }

  const Arena* arena() const { return arena_.get(); }
  const BlockPlace& place() const { return place_; }

 private:
  const std::shared_ptr<Arena> arena_;
  const BlockPlace place_;
  const std::uint64_t bytes_;
};

Arena::~Arena() = default;

const std::shared_ptr<Arena>& Arena::of_process() {
  // Never destroyed: tensors may outlive the static objects.
  static const auto* const arena =
      new std::shared_ptr<Arena>(std::make_shared<Arena>(memory_of_machine() / 2));
  return *arena;
}

at::Tensor Arena::allocate(at::IntArrayRef sizes, at::ScalarType dtype) {
  const std::uint64_t bytes = whole_pages(
      static_cast<std::uint64_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype));
  if (bytes == 0) return {};
  collect();
  BlockPlace place;
  std::byte* data = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!take(bytes, place, data) && !(grow(bytes) && take(bytes, place, data))) return {};
  }
  return tensor_on(data, sizes, dtype,
                   std::make_unique<ArenaMemory>(shared_from_this(), place, bytes));
}

// First fit by address: memory that was used just before is used again, from the cache. REQUIRES:
// mutex_ is held.
bool Arena::take(std::uint64_t bytes, BlockPlace& place, std::byte*& data) {
  if (free_bytes_ < bytes) return false;
  for (auto& [id, segment] : segments_) {
    if (segment.unused < bytes) continue;
    const auto found = std::find_if(segment.free.begin(), segment.free.end(),
                                    [&](const auto& block) { return block.second >= bytes; });
    if (found == segment.free.end()) continue;
    place = {id, found->first};
    data = segment.memory->data() + place.offset;
    const std::uint64_t rest = found->second - bytes;
    segment.free.erase(found);
    if (rest > 0) segment.free.emplace(place.offset + bytes, rest);
    segment.unused -= bytes;
    free_bytes_ -= bytes;
    return true;
  }
  return false;
}

// REQUIRES: mutex_ is held.
bool Arena::grow(std::uint64_t bytes) {
  if (bytes > limit_ - std::min(limit_, bytes_)) return false;
  const std::uint64_t room = (limit_ - bytes_) / kPage * kPage;
  const std::uint64_t wanted =
      std::min(std::max({bytes, smallest_, std::min(bytes_, kMostAhead)}), room);
  if (wanted < bytes) return false;
  auto made = SharedMemory::make(wanted);
  if (!made && wanted > bytes) made = SharedMemory::make(bytes);
  if (!made) {
    spdlog::debug("shm: {}", made.error().message);
    return false;
  }
  Segment& segment = segments_[next_segment_++];
  segment.unused = (*made)->bytes();
  segment.free.emplace(0, segment.unused);
  segment.memory = *std::move(made);
  bytes_ += segment.unused;
  free_bytes_ += segment.unused;
  return true;
}

void Arena::give_back(const BlockPlace& place, std::uint64_t bytes) {
  std::vector<std::shared_ptr<SharedMemory>> dropped;  // unmapped after the lock is released
  const std::lock_guard<std::mutex> lock(mutex_);
  Segment& segment = segments_.at(place.segment);
  segment.unused += bytes;
  free_bytes_ += bytes;
  auto at = segment.free.emplace(place.offset, bytes).first;
  if (const auto next = std::next(at);
      next != segment.free.end() && at->first + at->second == next->first) {
    at->second += next->second;
    segment.free.erase(next);
  }
  if (at != segment.free.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second == at->first) {
      before->second += at->second;
      segment.free.erase(at);
    }
  }
  shrink(dropped);
}

// REQUIRES: mutex_ is held.
void Arena::shrink(std::vector<std::shared_ptr<SharedMemory>>& dropped) {
  constexpr std::uint64_t kKept = std::uint64_t{1} << 30;
  for (auto it = segments_.begin(); it != segments_.end();) {
    Segment& segment = it->second;
    const bool much = free_bytes_ > kKept && free_bytes_ - segment.unused >= bytes_ / 2;
    if (segment.unused != segment.memory->bytes() || (users_ > 0 && !much)) {
      ++it;
      continue;
    }
    bytes_ -= segment.unused;
    free_bytes_ -= segment.unused;
    dropped.push_back(std::move(segment.memory));
    it = segments_.erase(it);
  }
}

bool Arena::owns(const at::Tensor& t) const {
  const auto* const memory = dynamic_cast<const ArenaMemory*>(memory_of(owner_of_part(t)));
  return memory != nullptr && memory->arena() == this;
}

BlockPlace Arena::place_of(const at::Tensor& t) {
  const at::Tensor& owner = owner_of_part(t);
  const auto* const memory = dynamic_cast<const ArenaMemory*>(memory_of(owner));
  GRAPEVINE_CHECK(memory != nullptr, "a tensor outside of the arena");
  const auto* const block = static_cast<const std::byte*>(owner.storage().data_ptr().get());
  const auto before = static_cast<const std::byte*>(t.data_ptr()) - block;
  return {memory->place().segment, memory->place().offset + static_cast<std::uint64_t>(before)};
}

std::shared_ptr<SharedMemory> Arena::segment(std::uint32_t id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = segments_.find(id);
  return found == segments_.end() ? nullptr : found->second.memory;
}

void Arena::add(std::shared_ptr<Lender> lender) {
  const std::lock_guard<std::mutex> lock(lenders_mutex_);
  lenders_.push_back(std::move(lender));
}

void Arena::collect() {
  const std::lock_guard<std::mutex> lock(lenders_mutex_);
  // A receiver that returns nonsense shows at its link; its payloads stay.
  for (const auto& lender : lenders_) static_cast<void>(lender->collect().ok());
  lenders_.erase(std::remove_if(lenders_.begin(), lenders_.end(),
                                [](const auto& lender) { return lender->is_over(); }),
                 lenders_.end());
}

void Arena::enter() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (++users_ == 1) use_send_memory(shared_from_this());
}

void Arena::leave() {
  collect();
  std::vector<std::shared_ptr<SharedMemory>> dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--users_ > 0) return;
  use_send_memory(nullptr);
  shrink(dropped);
}

std::uint64_t Arena::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

std::uint64_t Arena::free_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return free_bytes_;
}

}  // namespace grapevine::shm
