#include "net/tcp/tcp_outbox.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace grapevine::tcp {
namespace {

// The most that one system call writes.
constexpr std::size_t kWriteParts = 64;
constexpr std::size_t kWriteBytes = std::size_t{1} << 20;

// The most that the thread of a sender writes at once.
constexpr std::size_t kBytesOfSender = std::size_t{1} << 20;
// A small frame that follows another one within this time waits for the event loop, which takes
// longer to wake: until then more may follow. An answer to an answer takes twice as long.
constexpr Clock::duration kBurstPause = std::chrono::microseconds(10);
constexpr std::size_t kSmallBytes = std::size_t{16} << 10;

std::size_t size_of(const OutFrame& frame) {
  std::size_t size = frame.bytes.size();
  for (const FrozenTensor& t : frame.payload) size += t.nbytes();
  return size;
}

// The bytes of one system call.
class Gathered {
 public:
  // Those of the frames from `offset` of the first one on, as many as one call may have.
  Gathered(const std::list<OutFrame>& frames, std::size_t offset) : skip_(offset) {
    for (auto frame = frames.begin(); frame != frames.end() && !is_full(); ++frame) {
      add(frame->bytes.data(), frame->bytes.size());
      for (const FrozenTensor& t : frame->payload)
        if (t.nbytes() > 0) add(t.raw(), t.nbytes());
    }
  }

  const iovec* parts() const { return parts_.data(); }
  std::size_t count() const { return count_; }

 private:
  bool is_full() const { return count_ == parts_.size() || bytes_ == kWriteBytes; }
  void add(const void* data, std::size_t size) {
    const std::size_t skipped = std::min(skip_, size);
    skip_ -= skipped;
    const std::size_t count = std::min(size - skipped, kWriteBytes - bytes_);
    if (count == 0 || is_full()) return;
    auto* const begin = const_cast<char*>(static_cast<const char*>(data)) + skipped;
    parts_[count_++] = {begin, count};
    bytes_ += count;
  }

  std::array<iovec, kWriteParts> parts_;
  std::size_t count_ = 0;
  std::size_t skip_;
  std::size_t bytes_ = 0;
};

}  // namespace

OutFrame frame_of(std::variant<EncodedMessage, Departure> what) {
  if (const auto* departure = std::get_if<Departure>(&what))
    return {encode_control({Control::rank_down, departure->rank}), {}};
  auto& message = std::get<EncodedMessage>(what);
  return {std::move(message.header), std::move(message.payload)};
}

void Outbox::add(OutFrame frame) {
  const std::size_t size = size_of(frame);
  std::list<OutFrame> added;  // destroyed after the lock is released
  added.push_back(std::move(frame));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::closed) return;
  if (queue_.empty()) progress_ = Clock::now();
  queue_.splice(queue_.end(), added);
  queued_.add(size);
}

void Outbox::pump() { pump(kBytesOfSender, kBurstPause, false); }

// `resumes`: the stream may have bytes of its own to write.
void Outbox::pump(std::size_t most, Clock::duration pause, bool resumes) {
  std::list<OutFrame> done;  // their tensors are released with no lock held
  std::size_t total = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  if (state_ != (resumes ? State::waiting : State::idle)) return;
  if (queue_.empty() && !resumes) return;
  if (Clock::now() - written_ < pause && size_of(queue_.back()) < kSmallBytes) {
    state_ = State::waiting;
    lock.unlock();
    return loop_.pump_when_writable();
  }
  do {
    state_ = State::writing;
    const Gathered gathered(queue_, offset_);
    lock.unlock();
    done.clear();
    const Moved moved = stream_->write(gathered.parts(), gathered.count());
    lock.lock();
    sent(moved.bytes, done);
    total += moved.bytes;
    if (state_ == State::closed) return done.splice(done.end(), queue_);
    const bool broken = !moved.error.empty();
    if (broken || moved.blocked || (total >= most && !queue_.empty())) {
      state_ = broken ? State::closed : State::waiting;
      if (broken) {
        done.splice(done.end(), queue_);
        queued_.clear();
      }
      lock.unlock();
      return broken ? loop_.on_broken(moved.error) : loop_.pump_when_writable();
    }
  } while (!queue_.empty());
  state_ = State::idle;
}

void Outbox::resume() { pump(kAll, {}, true); }

void Outbox::sent(std::size_t bytes, std::list<OutFrame>& done) {
  if (bytes > 0) progress_ = written_ = Clock::now();
  offset_ += bytes;
  queued_.remove(bytes);
  while (!queue_.empty() && offset_ >= size_of(queue_.front())) {
    offset_ -= size_of(queue_.front());
    done.splice(done.end(), queue_, queue_.begin());
  }
}

void Outbox::fail(const std::string& why) {
  close();
  loop_.on_broken(why);
}

void Outbox::close() {
  std::list<OutFrame> dropped;  // destroyed after the lock is released
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ != State::writing) dropped.swap(queue_);  // else the writing thread drops them
  state_ = State::closed;
  queued_.clear();
}

bool Outbox::is_sent() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queue_.empty() && (state_ == State::idle || state_ == State::closed);
}

void Outbox::count_in(std::shared_ptr<QueuedTotal> total) {
  const std::lock_guard<std::mutex> lock(mutex_);
  queued_.count_in(std::move(total));
}

Clock::time_point Outbox::progress() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return progress_;
}

void Outbox::restart_progress() {
  const std::lock_guard<std::mutex> lock(mutex_);
  progress_ = Clock::now();
}

}  // namespace grapevine::tcp
