// The sending half of a connection: frames wait in it and leave in order, from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "net/queued_bytes.hpp"
#include "net/rank_router.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tcp_frames.hpp"
#include "net/tcp/tcp_stream.hpp"

namespace grapevine::tcp {

OutFrame frame_of(std::variant<EncodedMessage, Departure> what);

// The requests of an Outbox to the event loop. Called on any thread, with no lock held.
class OutboxLoop {
 public:
  virtual ~OutboxLoop() = default;
  // Call pump() once the socket can be written.
  virtual void pump_when_writable() = 0;
  // The connection takes no more: its end will follow, perhaps behind bytes that have arrived.
  virtual void on_broken(const std::string& why) = 0;
};

// A thread that adds a frame writes it itself where nothing is before it: a change of threads costs
// more than a small write. In a burst of small frames the event loop writes, many at once. Headers
// and payloads leave in one system call, the payloads from the memory of their tensors; frames that
// have gathered leave together. Thread-safe.
class Outbox {
 public:
  Outbox(std::shared_ptr<Stream> stream, OutboxLoop& loop)
      : stream_(std::move(stream)), loop_(loop) {}

  // Writes nothing. Ignored once the connection is broken or closed.
  void add(OutFrame frame);
  // Writes, unless another thread does or the socket takes no bytes. Frames that follow each other
  // closely and the rest of a large one are left to the event loop.
  void pump();
  // On the event loop.
  void pump_all() { pump(kAll, {}, false); }
  // On the event loop: the socket can be written again.
  void resume();

  // A frame could not be added: the connection must end. No lock may be held that the loop takes.
  void fail(const std::string& why);
  // The frames are discarded, also those to come.
  void close();
  bool is_sent() const;
  // From now on `total` counts the bytes of waiting frames that the system has not taken; none once
  // this outbox is broken or closed. Null: they are not counted.
  void count_in(std::shared_ptr<QueuedTotal> total);
  // When bytes last went out, or the first one was added, or this was asked for.
  Clock::time_point progress() const;
  void restart_progress();

 private:
  enum class State { idle, writing, waiting, closed };
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  void pump(std::size_t most, Clock::duration pause, bool resumes);
  void sent(std::size_t bytes, std::list<OutFrame>& done);

  const std::shared_ptr<Stream> stream_;
  OutboxLoop& loop_;

  mutable std::mutex mutex_;  // not held while the system copies bytes
  // Guarded by mutex_.
  State state_ = State::idle;
  std::list<OutFrame> queue_;  // its frames stay while the system copies their bytes
  std::size_t offset_ = 0;     // bytes of queue_.front() that are sent
  QueuedBytes queued_;         // of queue_, what is not sent
  Clock::time_point written_;
  Clock::time_point progress_ = Clock::now();
};

}  // namespace grapevine::tcp
