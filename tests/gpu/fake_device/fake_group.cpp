#include "tests/gpu/fake_device/fake_group.hpp"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "messages/check.hpp"
#include "tests/gpu/fake_device/memory.hpp"
#include "tests/gpu/fake_device/order.hpp"
#include "tests/gpu/fake_device/streams.hpp"

namespace grapevine::fake {
namespace {

using SteadyClock = std::chrono::steady_clock;

// What all replicas of a group see, in a file that begins as zeros.
struct Shared {
  std::atomic<std::uint32_t> joined;
  std::atomic<std::uint32_t> here;    // at the barrier
  std::atomic<std::uint32_t> passes;  // of the barrier
  std::atomic<std::uint32_t> left;    // replicas whose object has ended
};

std::string path_of(const std::string& id, const std::string& what) {
  return "/dev/shm/grapevine-fake-group-" + id + "-" + what;
}

Block* block_of(const at::Tensor& t) {
  return static_cast<Block*>(t.storage().data_ptr().get_context());
}

class File {
 public:
  explicit File(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    GRAPEVINE_CHECK(file_ >= 0, "no file ", path);
  }
  ~File() { ::close(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int get() const { return file_; }
  void write(const float* values, std::int64_t n) {
    const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
    GRAPEVINE_CHECK(::pwrite(file_, values, bytes, 0) == static_cast<ssize_t>(bytes), path_);
  }
  std::vector<float> read(std::int64_t n) const {
    std::vector<float> values(static_cast<std::size_t>(n));
    const std::size_t bytes = values.size() * sizeof(float);
    GRAPEVINE_CHECK(::pread(file_, values.data(), bytes, 0) == static_cast<ssize_t>(bytes), path_);
    return values;
  }

 private:
  const std::string path_;
  const int file_;
};

class FakeGroup final : public GradientGroup {
 public:
  FakeGroup(std::string id, std::size_t first, std::size_t here, std::size_t replicas,
            Duration timeout)
      : id_(std::move(id)), first_(first), replicas_(replicas), timeout_(timeout), clocks_(here) {
    const File header(path_of(id_, "header"));
    GRAPEVINE_CHECK(::ftruncate(header.get(), sizeof(Shared)) == 0, "no space for a group");
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, header.get(), 0);
    GRAPEVINE_CHECK(memory != MAP_FAILED, "no memory for a group");
    shared_ = static_cast<Shared*>(memory);
    for (std::size_t i = 0; i < replicas; ++i)
      files_.push_back(std::make_unique<File>(path_of(id_, std::to_string(i))));
  }
  // The last one leaves no files behind, and neither does one whose others may have died.
  ~FakeGroup() override {
    const auto here = static_cast<std::uint32_t>(clocks_.size());
    if ((shared_->left += here) == replicas_ || aborted_ || shared_->joined < replicas_) {
      ::unlink(path_of(id_, "header").c_str());
      for (std::size_t i = 0; i < replicas_; ++i) ::unlink(path_of(id_, std::to_string(i)).c_str());
    }
    ::munmap(shared_, sizeof(Shared));
  }

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
  Expected<void> collective(
      const char* name, std::size_t replica, const at::Tensor& operand, const float* sent,
      std::int64_t n, const std::function<void(std::size_t, const std::vector<float>&)>& take) {
    const auto offset = static_cast<std::uint64_t>(operand.storage_offset()) * sizeof(float);
    const Access used(&block_of(operand)->history, offset,
                      offset + static_cast<std::uint64_t>(operand.nbytes()));
    const std::size_t stream = stream_of_operation(operand.device().index(), block_of(operand));
    set_clock(replica, order().now(stream));
    files_.at(replica)->write(sent, n);
    if (auto all = barrier(); !all) return all;
    wait_for_streams(stream);
    const std::uint64_t time = order().run(name, stream, {used}, {used});
    set_clock(replica, {{stream, time}});
    for (std::size_t i = 0; i < replicas_; ++i) take(i, files_[i]->read(n));
    if (auto all = barrier(); !all) return all;
    wait_for_streams(stream);
    return barrier();  // before the next one changes the clocks
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

  const std::string id_;
  const std::size_t first_, replicas_;
  const Duration timeout_;
  Shared* shared_ = nullptr;
  std::vector<std::unique_ptr<File>> files_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::vector<Clock> clocks_;  // of the replicas of this process; guarded by mutex_
};

}  // namespace

Expected<std::shared_ptr<GradientGroup>> join_group(const std::string& id, std::size_t first,
                                                    std::size_t here, std::size_t replicas,
                                                    Duration timeout,
                                                    const std::function<bool()>& cancelled) {
  auto group = std::make_shared<FakeGroup>(id, first, here, replicas, timeout);
  if (auto joined = group->join(cancelled); !joined) return joined.error();
  return std::shared_ptr<GradientGroup>(std::move(group));
}

std::string make_group_id() {
  std::random_device random;
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x", random(), random());
  return text.data();
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
