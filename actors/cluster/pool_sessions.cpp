#include "actors/cluster/pool_sessions.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace grapevine {
namespace {

// A caller continues its session at once.
constexpr std::size_t kMaxGreeted = 1024;

}  // namespace

Greeting PoolSessions::greet(const Greet& greet) {
  if (greeted_.size() >= kMaxGreeted) drop_oldest();
  Greeting greeting = answer_greeting(secret_, greet, ++last_);
  sessions_[greeting.session] = pool_session(secret_, greet, greeting);
  greeted_.push_back(greeting.session);
  return greeting;
}

void PoolSessions::drop_oldest() {
  sessions_.erase(greeted_.front());
  greeted_.pop_front();
}

void PoolSessions::keep(std::uint64_t session) {
  greeted_.erase(std::remove(greeted_.begin(), greeted_.end(), session), greeted_.end());
}

void PoolSessions::log_distrusted(caf::actor_system& system) {
  if (const auto more = distrusted_.admit(system.clock().now()))
    spdlog::warn("a message without the proof of this pool's secret was ignored{}", *more);
}

bool PoolSessions::is_forgotten(const Seal& seal) const {
  return seal.session > 0 && seal.session <= last_ && sessions_.count(seal.session) == 0;
}

}  // namespace grapevine
