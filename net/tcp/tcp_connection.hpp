// One connection of the TCP transport: its state, and the frames that it sends and receives.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <caf/io/connection_handle.hpp>

#include "net/rank_router.hpp"
#include "net/tcp/tcp.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tcp_frames.hpp"

namespace grapevine::tcp {

// Belongs to the broker, on the event loop.
struct Connection {
  enum class State { greeting, held, open };

  // Appends bytes of the queue to what CAF writes, as far as it may have unsent ones.
  void fill(std::vector<char>& buffer);
  bool is_sent() const { return unsent == 0 && queue.empty(); }

  caf::io::connection_handle handle;
  std::uint64_t serial = 0;  // handles are descriptors and are reused; this is not
  State state = State::greeting;
  Hello hello;                // valid in `held`
  std::int32_t process = -1;  // valid in `open`
  std::unique_ptr<FrameReader> reader;
  std::deque<OutFrame> queue;
  std::size_t written = 0;   // bytes of queue.front() that CAF has
  std::uint64_t unsent = 0;  // bytes that CAF has and the kernel has not
  bool said_goodbye = false;
  Clock::time_point last_received;  // when bytes last arrived
  Clock::time_point progress;       // when bytes last went out
};

OutFrame frame_of(std::variant<EncodedMessage, Departure> what);

// The received frames of a connection, for the router. Checks that its process may send them.
class Receiver final : public FrameSink {
 public:
  Receiver(RankRouter& router, std::int32_t process) : router_(router), process_(process) {}

  Expected<void> admit(Rank from, Rank to) override;
  void on_message(Envelope envelope) override { router_.arrived(std::move(envelope)); }
  Expected<void> on_control(const Control& control) override;

  int pings() const { return pings_; }

 private:
  bool lives_there(Rank rank) const;

  RankRouter& router_;
  const std::int32_t process_;
  int pings_ = 0;
};

}  // namespace grapevine::tcp
