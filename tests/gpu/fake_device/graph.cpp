#include "tests/gpu/fake_device/graph.hpp"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace grapevine::fake {
namespace {

struct Registry {
  std::mutex mutex;
  std::set<GraphMemory*> graphs;
  std::map<std::size_t, Recording*> recordings;  // by stream
  std::set<Block*> unclaimed;                    // see allocated_without_stream()
};

Registry& registry() {
  static auto* const instance = new Registry;  // blocks end after static objects do
  return *instance;
}

thread_local Recording* of_thread = nullptr;

}  // namespace

Place Place::of(const at::Tensor& t) {
  return {static_cast<Block*>(t.storage().data_ptr().get_context()),
          t.storage().nbytes(),
          t.sizes().vec(),
          t.strides().vec(),
          t.storage_offset(),
          t.dtype()};
}

// It shares the storage's layout. An operator that needs more for its output, as those do that
// LibTorch gives an empty one, takes it from the host.
at::Tensor Place::alias() const {
  char* const memory = bytes == 0 ? nullptr : alias_of(block->shown);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(memory, at::kCPU),
                       c10::GetCPUAllocator(), /*resizable=*/true);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), type);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  t.unsafeGetTensorImpl()->set_storage_offset(offset);
  return t;
}

Access Place::access() const {
  std::int64_t last = offset;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 0) last += (sizes[d] - 1) * strides[d];
  const auto size = static_cast<std::uint64_t>(type.itemsize());
  return {&block->history, static_cast<std::uint64_t>(offset) * size,
          static_cast<std::uint64_t>(last + 1) * size};
}

GraphMemory::GraphMemory() {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  registry().graphs.insert(this);
}

GraphMemory::~GraphMemory() {
  {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    registry().graphs.erase(this);
  }
  for (Block* block : released_) release(block);
}

void GraphMemory::allocated(Block* block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  own_.insert(block);
}

void GraphMemory::use(const Place& place, bool written) {
  if (place.bytes == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (own_.count(place.block) > 0) return;
  outside_.insert(place.block);
  if (!written || before_.count(place.block) > 0) return;
  const char* const bytes = alias_of(place.block->shown);
  before_[place.block].assign(bytes, bytes + place.block->bytes);
}

void GraphMemory::restore() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [block, bytes] : before_)
    std::memcpy(alias_of(block->shown), bytes.data(), bytes.size());
  before_.clear();
  for (Block* block : own_) std::memset(alias_of(block->shown), 0xff, block->bytes);
}

std::size_t GraphMemory::gone() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return gone_;
}

std::vector<Block*> GraphMemory::own() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {own_.begin(), own_.end()};
}

bool GraphMemory::lose(Block* block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (own_.count(block) > 0) {
    released_.insert(block);
    return true;
  }
  if (outside_.erase(block) > 0) gone_ += block->bytes;
  before_.erase(block);
  return false;
}

bool GraphMemory::keeps(Block* block) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  registry().unclaimed.erase(block);
  bool kept = false;
  for (GraphMemory* each : registry().graphs) kept = each->lose(block) || kept;
  return kept;
}

Recording::Recording(std::size_t stream) : stream_(stream) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  registry().recordings[stream] = this;
  of_thread = this;
}

Recording::~Recording() {
  {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    registry().recordings.erase(stream_);
    if (registry().recordings.empty()) registry().unclaimed.clear();
    of_thread = nullptr;
  }
  memory_->restore();
}

void Recording::use(const Place& place, bool written) {
  bool claimed = false;
  {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    claimed = registry().unclaimed.erase(place.block) > 0;
  }
  if (claimed) memory_->allocated(place.block);
  memory_->use(place, written);
}

void Recording::add(GraphWork work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  work_.push_back(std::move(work));
}

void Recording::refuse(const std::string& what) {
  const std::string line = what + " is not permitted when a stream is capturing";
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    refused_ = line;
  }
  TORCH_CHECK(false, line);
}

void Recording::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(refused_.empty(), refused_);
}

Recording* recording_in(std::size_t stream) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().recordings.find(stream);
  return found == registry().recordings.end() ? nullptr : found->second;
}

void allocated_without_stream(Block* block) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  if (!registry().recordings.empty()) registry().unclaimed.insert(block);
}

Recording* recording_of_thread() { return of_thread; }

void replay(const std::vector<GraphWork>& work, GraphMemory& memory, std::size_t stream) {
  const at::AutoDispatchBelowADInplaceOrView below;
  order().run("graph replay", stream, {}, {});
  if (const std::size_t gone = memory.gone(); gone > 0)
    return order().violation("a graph uses memory that was freed after its capture (" +
                             std::to_string(gone) + " bytes)");
  for (Block* block : memory.own()) order().record_stream(block->history, stream);
  const auto accesses = [](const std::vector<Place>& places) {
    std::vector<Access> found;
    for (const Place& each : places)
      if (each.bytes > 0) found.push_back(each.access());
    return found;
  };
  for (const GraphWork& each : work) {
    order().run(each.name, stream, accesses(each.reads), accesses(each.writes));
    each.run();
  }
}

}  // namespace grapevine::fake
