// The other process of tests/net/ucx/ucx_process_test.cpp.
//
// Usage: ucx_peer FOLDER PROCESS PROCESSES same|other echo|sink|flood|stream|leave|join
//   echo   sends everything back
//   sink   takes everything; says "taken" at the first message
//   flood  sends rank 0 large messages without end; says "flooding"
//   stream sends rank 0 many messages that UCX announces before it sends them
//   leave  sends rank 0 kLeaving numbered messages, one of them large, and ends
//   join   joins the others, and sends everything back
// All but `leave` end when rank 0 is down.
#include <ATen/ops/zeros.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "tests/net/ucx/ucx_testing.hpp"

namespace grapevine {
namespace {

class PeerInbox final : public Inbox {
 public:
  PeerInbox(Transport& transport, std::string scenario)
      : transport_(transport), scenario_(std::move(scenario)) {}

  void deliver(Envelope e) override {
    if (scenario_ == "echo" || scenario_ == "join") {
      std::swap(e.from, e.to);
      transport_.send(std::move(e));
    } else if (scenario_ == "sink") {
      std::printf("taken\n");
      std::fflush(stdout);
    }
  }
  void peer_down(Rank peer, const std::string&) override {
    if (peer != 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(5), [&] { return over_; });
  }

 private:
  Transport& transport_;
  const std::string scenario_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
};

void send(Transport& transport, Rank from, std::int32_t index, const FrozenTensor& data) {
  Envelope e;
  e.from = from;
  e.to = 0;
  e.payload = Chunk{0, 0, index, data};
  transport.send(std::move(e));
}

FrozenTensor zeros(std::int64_t bytes) {
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  return FrozenTensor::freeze(at::zeros({bytes / kFloat}, at::TensorOptions(at::kFloat)));
}

int run(const std::string& folder, const Placement& where, const std::string& scenario) {
  auto transport = FileRendezvous(folder).meet(loopback_options(), where, scenario == "join");
  if (!transport) {
    std::fprintf(stderr, "error: %s\n", transport.error().message.c_str());
    return 1;
  }
  const Rank rank = where.own_process;
  const auto inbox = std::make_shared<PeerInbox>(**transport, scenario);
  if (!(*transport)->attach(rank, inbox)) return 1;
  if (scenario == "leave") {
    for (std::int32_t i = 0; i < kLeaving; ++i)
      send(**transport, rank, i, zeros(i == kLeaving / 2 ? kLargeBytes : 8));
    return 0;
  }
  if (scenario == "flood") {
    const FrozenTensor data = zeros(kLargeBytes);
    for (std::int32_t i = 0; i < 500; ++i) send(**transport, rank, i, data);
    std::printf("flooding\n");
    std::fflush(stdout);
  }
  if (scenario == "stream") {
    const FrozenTensor data = zeros(kAnnouncedBytes);
    for (std::int32_t i = 0; i < kStreamed; ++i) send(**transport, rank, i, data);
  }
  inbox->wait();
  return 0;
}

}  // namespace
}  // namespace grapevine

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const auto where =
      grapevine::placement(std::stoi(argv[2]), std::stoi(argv[3]), std::string(argv[4]) == "same");
  return grapevine::run(argv[1], where, argv[5]);
}
