// Order: which work of the fake device is ordered after which, by vector clocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace grapevine::fake {

// By stream, up to which piece of its work: an event, or what the host knows to be complete. 0, as
// for streams beyond its end: none. Dense: a long test has thousands of streams, most of which the
// host knows.
using Clock = std::vector<std::uint64_t>;

struct StreamKey {
  int device = 0;
  std::int64_t id = 0;  // 0: the default stream
  bool operator<(const StreamKey& other) const {
    return std::pair(device, id) < std::pair(other.device, other.id);
  }
};

// What happened to a block of the device's memory.
struct History {
  struct Use {
    std::size_t stream = 0;
    std::uint64_t time = 0;
    std::string operation;  // with its stream
    // Bytes of the block; of several uses of a stream: of all of them.
    std::uint64_t begin = 0, end = std::numeric_limits<std::uint64_t>::max();
  };
  std::size_t home = 0;  // the stream in which it was allocated, or else first used
  bool has_home = false;
  std::uint64_t bytes = 0;
  Use write;                          // the last one; time 0: none
  std::map<std::size_t, Use> writes;  // the last one, by stream, without those overwritten since
  std::map<std::size_t, Use> reads;   // the last one, by stream, likewise
  std::map<std::size_t, Use> uses;    // the last one, by stream
  std::set<std::size_t> recorded;     // streams of which the allocator knows
};

// What an operation uses of a block: bytes [begin, end). Parts of a block that do not overlap may
// be used in any order.
struct Access {
  Access(History* of, std::uint64_t from = 0,  // NOLINT(google-explicit-constructor): a whole block
         std::uint64_t to = std::numeric_limits<std::uint64_t>::max())
      : block(of), begin(from), end(to) {}
  History* block;
  std::uint64_t begin, end;
};

// Faults of the device, as if a caller had forgotten something.
enum class Fault {
  none,
  ready_events_are_empty,   // a frozen tensor has no event
  upload_is_not_awaited,    // the compute stream does not wait for the upload stream
  exchange_does_not_wait,   // the exchange stream does not wait for others
  exchange_is_not_awaited,  // the compute stream does not wait for the exchange stream
  download_does_not_wait,   // the download stream does not wait for the exchange stream
  host_does_not_wait,       // a host that waits for an event continues at once
  foreign_is_not_awaited,   // a stream does not wait for one of another device
  allocator_is_not_told,    // memory is not held for the other streams that use it
};

// Bytes that were copied since the last reset.
struct Traffic {
  std::uint64_t up = 0;      // host to device
  std::uint64_t down = 0;    // device to host
  std::uint64_t across = 0;  // from device to device
  // Of `up`: from where a model lies (gpu/memory/model_memory.hpp), not from a copy that the host
  // made.
  std::uint64_t up_in_place = 0;
};

// One for the process: streams of several devices wait for each other. Work is done when it is
// enqueued, in the order of the calls; what counts is whether streams, events and waits would have
// enforced that order on a real device. A violation is recorded, not thrown. Thread-safe.
//
// It also has a time, in seconds from 0: an operation begins when the host has enqueued it and its
// stream has done what went before it and what it waits for, and takes what set_duration() says, or
// nothing. The host's time passes where it waits, and by host_works().
class Order {
 public:
  std::size_t stream(StreamKey key);
  void name(StreamKey key, const std::string& name);

  // Work in `stream` that reads and writes those blocks.
  std::uint64_t run(const std::string& operation, std::size_t stream,
                    const std::vector<Access>& reads, const std::vector<Access>& writes);
  // Work in no stream, of hardware beside the device: only the host can have waited for others.
  void run_outside(const std::string& operation, const History* reads, const History* writes);
  // Without `stream`: in that of its first use.
  void allocated(History& block, std::optional<std::size_t> stream);
  // The memory returns to the allocator, which gives it to work of the block's home stream.
  void freed(History& block);
  void record_stream(History& block, std::size_t stream);

  Clock now(std::size_t stream);
  // `at`: the time of the event.
  void wait(std::size_t stream, const Clock& event, double at = 0);
  // The host waits: work that it enqueues from now on comes after the event.
  void host_waits(const Clock& event, double at = 0);
  bool host_knows(const Clock& event);
  bool host_knows(std::size_t stream, std::uint64_t time);

  // When the stream will have done all its work.
  double time_of(std::size_t stream);
  double host_time();
  void host_works(double seconds);
  void set_duration(const std::string& operation, double seconds);

  void violation(const std::string& what);
  std::vector<std::string> violations();
  Traffic traffic();
  std::uint64_t calls(const std::string& operation);
  void count(const Traffic& copied);
  Fault fault();
  void set_fault(Fault fault);
  // Forgets violations, traffic, calls, durations and the fault; streams, blocks and times stay.
  void reset();

 private:
  void allocate_in(History& block, std::size_t stream);
  bool covers(std::size_t stream, const History::Use& use);
  void check(const std::string& operation, std::size_t stream, const Access& now,
             const History::Use& before, const char* what);

  std::mutex mutex_;
  std::map<StreamKey, std::size_t> streams_;
  std::vector<Clock> clocks_;       // by stream
  std::vector<std::string> names_;  // by stream
  std::vector<double> free_at_;     // by stream: the end of its work so far
  Clock host_;
  double host_time_ = 0;
  std::map<std::string, double> durations_;  // by operation
  std::vector<std::string> violations_;
  Traffic traffic_;
  std::map<std::string, std::uint64_t> calls_;  // by operation
  Fault fault_ = Fault::none;
};

Order& order();

}  // namespace grapevine::fake
