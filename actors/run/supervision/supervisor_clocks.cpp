// The clocks of the other processes, for the trace: bursts of questions, of which the fastest
// answer tells most (see ClockFit).
#include "actors/clock_time.hpp"
#include "actors/run/supervisor.hpp"

namespace grapevine {
namespace {

constexpr int kBurst = 8;
constexpr Duration kBetweenBursts = std::chrono::seconds(30);
constexpr Duration kClockTimeout = std::chrono::seconds(2);

}  // namespace

std::int64_t SupervisorState::trace_now() const {
  return clock_time(self_->clock()).count() - config_.trace_zero_ns;
}

void SupervisorState::compare_all_clocks() {
  if (!crew_.traces()) return;
  for (std::int32_t process = 1; process < crew_.processes(); ++process) compare_clock_of(process);
}

void SupervisorState::compare_clock_of(std::int32_t process) {
  compare_clocks({process, kBurst, members_.incarnation(process)});
}

// A question that is not answered ends its burst.
void SupervisorState::compare_clocks(CompareClocks again) {
  if (stage_ == Stage::closing || stage_ == Stage::ended) return;
  const bool ended = members_.is_process_lost(again.process) ||
                     members_.incarnation(again.process) != again.incarnation;
  if (ended) return;
  if (again.left == 0) {
    again.left = kBurst;
    return self_->delayed_send(SupervisorActor{self_}, kBetweenBursts, again);
  }
  const std::int64_t sent = trace_now();
  self_->request(crew_.agent_of(again.process), kClockTimeout, AskClock{})
      .then(
          [this, again, sent](const ClockReading& reading) {
            if (stage_ == Stage::closing || stage_ == Stage::ended) return;
            crew_.trace({again.process, sent, reading.time_ns, trace_now(), reading.zero_ns});
            compare_clocks({again.process, again.left - 1, again.incarnation});
          },
          [this, again](const caf::error&) {
            compare_clocks({again.process, 0, again.incarnation});
          });
}

}  // namespace grapevine
