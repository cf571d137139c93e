// Graphs of the fake device: what a capture records, and its replay.
//
// What it does as CUDA does, or says where CUDA would fail:
// - Operations of the capturing stream, on whatever thread, are recorded with the addresses of
//   their operands. After the capture memory is as if they had not run.
// - A replay executes them on those addresses, in the stream of the replay, whose order is checked
//   like that of other work. Nothing of the host's code runs again.
// - Memory that was allocated in the capture lasts as long as the graph. Where other memory that it
//   uses was freed, a replay is a violation.
// - A capture refuses what needs the host: waits, numbers read from the device, copies from and to
//   the host, page locking, and random numbers of a generator.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/gpu/fake_device/memory.hpp"

namespace grapevine::fake {

// Where a tensor of the device lies, without a handle on its memory.
struct Place {
  static Place of(const at::Tensor& t);
  // The same bytes as a tensor on the CPU.
  at::Tensor alias() const;
  // All between the first and the last of its elements.
  Access access() const;

  Block* block = nullptr;
  std::size_t bytes = 0;  // of the storage
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  caffe2::TypeMeta type;
};

struct GraphWork {
  std::string name;
  std::vector<Place> reads, writes;
  std::function<void()> run;
};

// The memory of a graph, from the beginning of its capture on. Thread-safe.
class GraphMemory {
 public:
  GraphMemory();
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  void allocated(Block* block);
  // Before it is used; of memory from outside that is written the present bytes are kept.
  void use(const Place& place, bool written);
  // As it was before the capture; what was allocated since is undefined.
  void restore();
  // Of memory from outside that was freed since; 0: none.
  std::size_t gone() const;
  std::vector<Block*> own() const;

  // For release(): true: it belongs to a graph, which will release it.
  static bool keeps(Block* block);

 private:
  bool lose(Block* block);

  mutable std::mutex mutex_;
  std::set<Block*> own_;
  std::set<Block*> released_;  // of them: no tensor is left
  std::set<Block*> outside_;
  std::map<Block*, std::vector<char>> before_;
  std::size_t gone_ = 0;
};

// A capture in progress. While it lives, operations in `stream` are recorded.
class Recording {
 public:
  explicit Recording(std::size_t stream);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void add(GraphWork work);
  // Before each use of an operand.
  void use(const Place& place, bool written);
  void allocated(Block* block) { memory_->allocated(block); }
  // Throws; and the capture fails where the exception is caught.
  [[noreturn]] void refuse(const std::string& what);

  // Throws where something was refused.
  void end();
  std::shared_ptr<GraphMemory> memory() const { return memory_; }
  std::vector<GraphWork> work() { return std::move(work_); }

 private:
  const std::size_t stream_;
  const std::shared_ptr<GraphMemory> memory_ = std::make_shared<GraphMemory>();
  std::mutex mutex_;
  std::vector<GraphWork> work_;
  std::string refused_;
};

// Null: no capture.
Recording* recording_in(std::size_t stream);
Recording* recording_of_thread();  // that this thread has begun

// Memory that an engine thread has allocated for an operation that is not known yet. It is that of
// the capture which uses it first, if one does: the thread works for all workers of its device.
void allocated_without_stream(Block* block);

// Executes the work of a graph in `stream`.
void replay(const std::vector<GraphWork>& work, GraphMemory& memory, std::size_t stream);

}  // namespace grapevine::fake
