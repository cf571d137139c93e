#include "tests/gpu/fake_device/fake_group.hpp"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "messages/check.hpp"
#include "net/file_descriptor.hpp"
#include "tests/gpu/fake_device/memory.hpp"
#include "tests/gpu/fake_device/order.hpp"
#include "tests/gpu/fake_device/streams.hpp"

namespace grapevine::fake {
namespace {

using SteadyClock = std::chrono::steady_clock;

// What all replicas of a group see, at the begin of its memory, which begins as zeros.
struct Shared {
  std::atomic<std::uint32_t> joined;
  std::atomic<std::uint32_t> here;    // at the barrier
  std::atomic<std::uint32_t> passes;  // of the barrier
};

// Behind it, for the vector that each replica sends; only what is written takes memory.
constexpr std::uint64_t kRegion = std::uint64_t{1} << 30;

Block* block_of(const at::Tensor& t) {
  return static_cast<Block*>(t.storage().data_ptr().get_context());
}

// The memory of the groups whose ids were made here, until all of their replicas have opened it.
class Made {
 public:
  std::string add(FileDescriptor memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::string id = std::to_string(::getpid()) + "-" + std::to_string(memory.get());
    groups_[id] = std::move(memory);
    return id;
  }
  void remove(const std::string& id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    groups_.erase(id);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, FileDescriptor> groups_;  // by id
};

Made& made() {
  static Made groups;
  return groups;
}

// Of the process that has made the id. Negative: it has ended, or it is none.
FileDescriptor open_memory(const std::string& id) {
  const auto dash = id.find('-');
  if (dash == std::string::npos) return {};
  const std::string path = "/proc/" + id.substr(0, dash) + "/fd/" + id.substr(dash + 1);
  return FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

class FakeGroup final : public GradientGroup {
 public:
  FakeGroup(FileDescriptor memory, std::size_t first, std::size_t here, std::size_t replicas,
            Duration timeout)
      : memory_(std::move(memory)),
        first_(first),
        replicas_(replicas),
        timeout_(timeout),
        clocks_(here) {
    void* const mapped =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
    GRAPEVINE_CHECK(mapped != MAP_FAILED, "no memory for a group");
    shared_ = static_cast<Shared*>(mapped);
  }
  ~FakeGroup() override { ::munmap(shared_, sizeof(Shared)); }

  Expected<void> join(const std::function<bool()>& cancelled) {
    shared_->joined += static_cast<std::uint32_t>(clocks_.size());
    return wait([this] { return shared_->joined >= replicas_; }, cancelled);
  }

  Expected<void> all_gather(std::size_t replica, at::Tensor& flat) override {
    const std::int64_t slice = flat.numel() / static_cast<std::int64_t>(replicas_);
    const auto begin = [slice](std::size_t i) { return static_cast<std::int64_t>(i) * slice; };
    float* const values = memory_of(flat);
    return collective("all-gather", replica, flat, values + begin(replica), slice,
                      [&](std::size_t i, const std::vector<float>& of) {
                        std::copy(of.begin(), of.end(), values + begin(i));
                      });
  }

  // Replica 0 only reads its operand, which others may read meanwhile.
  Expected<void> broadcast(std::size_t replica, const at::Tensor& flat) override {
    float* const values = memory_of(flat);
    const std::int64_t n = flat.numel();
    const auto take = [&](std::size_t i, const std::vector<float>& of) {
      if (i == 0 && replica != 0) std::copy(of.begin(), of.end(), values);
    };
    return collective("broadcast", replica, flat, values, n, take, /*writes=*/replica != 0);
  }

  Expected<void> all_reduce_mean(std::size_t replica, at::Tensor& bucket) override {
    float* const values = memory_of(bucket);
    const std::int64_t n = bucket.numel();
    const auto summed = collective("all-reduce", replica, bucket, values, n,
                                   [&](std::size_t i, const std::vector<float>& of) {
                                     for (std::size_t k = 0; k < of.size(); ++k)
                                       values[k] = i == 0 ? of[k] : values[k] + of[k];
                                   });
    if (summed) bucket.mul_(1.0 / static_cast<double>(replicas_));
    return summed;
  }

  void abort() override { aborted_ = true; }

 private:
  static float* memory_of(const at::Tensor& t) {
    GRAPEVINE_CHECK(t.device().type() == at::kXPU && t.is_contiguous(), "not on a fake device");
    return reinterpret_cast<float*>(alias_of(t.data_ptr()));
  }

  // `take`: of each replica's `sent`, in their order, once all have sent theirs.
  Expected<void> collective(const char* name, std::size_t replica, const at::Tensor& operand,
                            const float* sent, std::int64_t n,
                            const std::function<void(std::size_t, const std::vector<float>&)>& take,
                            bool writes = true) {
    const auto offset = static_cast<std::uint64_t>(operand.storage_offset()) * sizeof(float);
    const Access used(&block_of(operand)->history, offset,
                      offset + static_cast<std::uint64_t>(operand.nbytes()));
    const std::size_t stream = stream_of_operation(operand.device().index(), block_of(operand));
    set_clock(replica, order().now(stream));
    send(replica, sent, n);
    if (auto all = barrier(); !all) return all;
    wait_for_streams(stream);
    const std::uint64_t time = order().run(
        name, stream, {used}, writes ? std::vector<Access>{used} : std::vector<Access>());
    set_clock(replica, {{stream, time}});
    for (std::size_t i = 0; i < replicas_; ++i) take(i, sent_by(i, n));
    if (auto all = barrier(); !all) return all;
    wait_for_streams(stream);
    return barrier();  // before the next one changes the clocks
  }

  static off_t begin_of(std::size_t replica) { return static_cast<off_t>((replica + 1) * kRegion); }
  void send(std::size_t replica, const float* values, std::int64_t n) const {
    const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
    GRAPEVINE_CHECK(replica < replicas_ && bytes <= kRegion, "replica ", replica, ", ", bytes);
    GRAPEVINE_CHECK(
        ::pwrite(memory_.get(), values, bytes, begin_of(replica)) == static_cast<ssize_t>(bytes),
        "no space for a vector");
  }
  std::vector<float> sent_by(std::size_t replica, std::int64_t n) const {
    std::vector<float> values(static_cast<std::size_t>(n));
    const std::size_t bytes = values.size() * sizeof(float);
    GRAPEVINE_CHECK(::pread(memory_.get(), values.data(), bytes, begin_of(replica)) ==
                        static_cast<ssize_t>(bytes),
                    "replica ", replica, " sent a shorter vector");
    return values;
  }

  void set_clock(std::size_t replica, Clock clock) {
    const std::lock_guard<std::mutex> lock(mutex_);
    clocks_.at(replica - first_) = std::move(clock);
  }
  void wait_for_streams(std::size_t stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Clock& clock : clocks_) order().wait(stream, clock);
  }

  Expected<void> barrier() {
    const std::uint32_t pass = shared_->passes;
    if (++shared_->here == replicas_) {
      shared_->here = 0;
      ++shared_->passes;
    }
    return wait([this, pass] { return shared_->passes != pass; }, nullptr);
  }

  Expected<void> wait(const std::function<bool()>& over, const std::function<bool()>& cancelled) {
    const auto until =
        SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(timeout_);
    while (!over()) {
      if (aborted_) return Error{Errc::peer_down, "the group was aborted"};
      if (cancelled && cancelled()) return Error{Errc::peer_down, "the join was cancelled"};
      if (SteadyClock::now() >= until)
        return Error{Errc::timeout, "the other replicas did not arrive in time"};
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return {};
  }

  const FileDescriptor memory_;
  const std::size_t first_, replicas_;
  const Duration timeout_;
  Shared* shared_ = nullptr;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::vector<Clock> clocks_;  // of the replicas of this process; guarded by mutex_
};

}  // namespace

Expected<std::shared_ptr<GradientGroup>> join_group(const std::string& id, std::size_t first,
                                                    std::size_t here, std::size_t replicas,
                                                    Duration timeout,
                                                    const std::function<bool()>& cancelled) {
  FileDescriptor memory = open_memory(id);
  if (memory.get() < 0) return Error{Errc::peer_down, "the process that made the group has ended"};
  auto group = std::make_shared<FakeGroup>(std::move(memory), first, here, replicas, timeout);
  const auto joined = group->join(cancelled);
  made().remove(id);  // all have it open now; or else the group is of no use
  if (!joined) return joined.error();
  return std::shared_ptr<GradientGroup>(std::move(group));
}

std::string make_group_id() {
  FileDescriptor memory(::memfd_create("grapevine-fake-group", MFD_CLOEXEC));
  GRAPEVINE_CHECK(memory.get() >= 0 && ::ftruncate(memory.get(), sizeof(Shared)) == 0,
                  "no memory for a group");
  return made().add(std::move(memory));
}

GroupJoin group_join() {
  return [](const std::vector<int>& gpus, Duration timeout) {
    return join_group(make_group_id(), 0, gpus.size(), gpus.size(), timeout, nullptr);
  };
}

ProcessGroups process_groups() {
  ProcessGroups groups;
  groups.make_id = []() -> Expected<ProcessGroups::Id> {
    const std::string id = make_group_id();
    return ProcessGroups::Id(id.begin(), id.end());
  };
  groups.join = [](const ProcessGroups::Id& id, int /*gpu*/, std::size_t replica,
                   std::size_t replicas, Duration timeout,
                   const ProcessGroups::Cancelled& cancelled) {
    return join_group(std::string(id.begin(), id.end()), replica, 1, replicas, timeout, cancelled);
  };
  return groups;
}

}  // namespace grapevine::fake
