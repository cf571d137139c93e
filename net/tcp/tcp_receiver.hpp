// The received frames of a connection, for the router.
#pragma once
#include <cstdint>

#include "net/rank_router.hpp"
#include "net/tcp/tcp_frames.hpp"

namespace grapevine::tcp {

// Checks that the process at the other end may send them.
class Receiver final : public FrameSink {
 public:
  Receiver(RankRouter& router, std::int32_t process) : router_(router), process_(process) {}

  Expected<void> admit(Rank from, Rank to) override;
  void on_message(Envelope envelope) override { router_.arrived(std::move(envelope)); }
  Expected<void> on_control(const Control& control) override;

  int pings() const { return pings_; }

 private:
  RankRouter& router_;
  const std::int32_t process_;
  int pings_ = 0;
};

}  // namespace grapevine::tcp
