// Messages between two processes of this machine over the UCX transport: time of a message of a
// stream, by size, and of a round trip of a small one. One JSON object per line; "link" says what
// UCX was to use. bandwidth_gbps is in units of 1e9 bit/s. Compare with
//   UCX_TLS=tcp (or posix,cma,tcp) UCX_NET_DEVICES=lo ucx_perftest -t ucp_am_bw -s BYTES and -t
//   ucp_am_lat -s 8 (half a round trip)
//
// Usage: [SPIN_US=N] [KEEP_BYTES=N] transport_bench [shm|tcp|both]   (fields of UcxOptions)
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tests/apps/process.hpp"
#include "tests/net/ucx/ucx_testing.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int32_t kEndOfBatch = 1;  // Chunk::index of a message that is to be answered

bool is_smoke() { return std::getenv("GRAPEVINE_BENCH_SMOKE") != nullptr; }

// Lets go of all it gets; answers the ends of batches.
class Answering final : public Inbox {
 public:
  explicit Answering(Transport& transport) : transport_(transport) {}
  void deliver(Envelope e) override {
    if (std::get<Chunk>(e.payload).index != kEndOfBatch) return;
    Envelope answer;
    answer.from = e.to;
    answer.to = e.from;
    answer.payload = Leave{};
    transport_.send(std::move(answer));
  }
  void peer_down(Rank, const std::string&) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(10), [&] { return over_; });
  }

 private:
  Transport& transport_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
};

// Waits for answers without taking the processor from those who make them.
class Waiting final : public Inbox {
 public:
  using Hook = std::function<bool()>;  // what an answer brings about; true: wait() is over

  void expect(Hook hook) {
    const std::lock_guard<std::mutex> lock(mutex_);
    hook_ = std::move(hook);
    over_ = false;
  }
  void deliver(Envelope) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = hook_();
    if (over_) changed_.notify_all();
  }
  void peer_down(Rank, const std::string&) override { std::abort(); }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return over_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Hook hook_;
  bool over_ = true;
};

double median_of(std::vector<double> seconds) {
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

int run_peer(const std::string& folder, bool same_host, const UcxOptions& options) {
  auto transport = FileRendezvous(folder).meet(options, placement(1, 2, same_host));
  if (!transport) {
    std::fprintf(stderr, "error: %s\n", transport.error().message.c_str());
    return 1;
  }
  const auto inbox = std::make_shared<Answering>(**transport);
  if (!(*transport)->attach(1, inbox)) return 1;
  inbox->wait();
  return 0;
}

class Prober {
 public:
  Prober(Transport& transport, std::string link) : transport_(transport), link_(std::move(link)) {}

  bool attach() { return transport_.attach(0, inbox_).ok(); }

  // Time per message of `batch` messages in a row, whose last one is answered.
  void stream(std::int64_t bytes, int batch, int batches) {
    const FrozenTensor data =
        FrozenTensor::freeze(at::zeros({bytes}, at::TensorOptions(at::kByte)));
    std::vector<double> seconds;
    for (int i = -2; i < rounds(batches); ++i) {
      const auto start = Clock::now();
      inbox_->expect([] { return true; });
      for (int m = 1; m <= batch; ++m) send(data, m == batch);
      inbox_->wait();
      if (i >= 0) seconds.push_back(to_seconds(Clock::now() - start) / batch);
    }
    report("p2p", bytes, seconds);
  }

  // Each answer sends the next ping, on the transport's thread, as an actor's reply would go.
  void round_trip(int pings) {
    const FrozenTensor data = FrozenTensor::freeze(at::zeros({8}, at::TensorOptions(at::kByte)));
    std::vector<double> seconds;
    auto start = Clock::now();
    const int count = rounds(pings);
    inbox_->expect([&, count] {
      const auto now = Clock::now();
      seconds.push_back(to_seconds(now - start));
      start = now;
      if (static_cast<int>(seconds.size()) >= count) return true;
      send(data, true);
      return false;
    });
    send(data, true);
    inbox_->wait();
    report("round_trip", 8, seconds);
  }

 private:
  static int rounds(int count) { return is_smoke() ? 1 : count; }

  void send(const FrozenTensor& data, bool answered) {
    Envelope e;
    e.from = 0;
    e.to = 1;
    e.payload = Chunk{0, 0, answered ? kEndOfBatch : 0, data};
    transport_.send(std::move(e));
  }
  void report(const char* kind, std::int64_t bytes, std::vector<double> times) const {
    const std::size_t count = times.size();
    const double seconds = median_of(std::move(times));
    nlohmann::ordered_json line;
    line["kind"] = kind;
    line["transport"] = "ucx";
    line["link"] = link_;
    line["bytes"] = bytes;
    line["median_s"] = seconds;
    line["bandwidth_gbps"] = 8e-9 * static_cast<double>(bytes) / seconds;
    line["iterations"] = count;
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

  Transport& transport_;
  const std::string link_;
  std::shared_ptr<Waiting> inbox_ = std::make_shared<Waiting>();
};

int probe(const std::string& link, const UcxOptions& options) {
  const TemporaryDirectory folder;
  ProcessOptions peer_options;
  peer_options.program = "/proc/self/exe";
  peer_options.timeout = std::chrono::minutes(10);
  Process peer({"--peer", folder.path().string(), link}, peer_options);
  auto transport = FileRendezvous(folder.path()).meet(options, placement(0, 2, link == "shm"));
  if (!transport) {
    std::fprintf(stderr, "error: %s\n", transport.error().message.c_str());
    return 1;
  }
  Prober prober(**transport, link);
  if (!prober.attach()) return 1;
  prober.stream(1'000'000, 32, 60);
  prober.stream(25'000'000, 4, 20);
  prober.stream(100'000'000, 4, 10);
  prober.round_trip(20'000);
  return 0;
}

UcxOptions options_from_environment() {
  UcxOptions options = loopback_options();
  if (const char* us = std::getenv("SPIN_US")) options.spin = std::chrono::microseconds(atoi(us));
  if (const char* keep = std::getenv("KEEP_BYTES"))
    options.keep_receive_bytes = strtoull(keep, nullptr, 10);
  return options;
}

}  // namespace
}  // namespace grapevine

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const grapevine::UcxOptions options = grapevine::options_from_environment();
  if (arguments.size() == 3 && arguments[0] == "--peer")
    return grapevine::run_peer(arguments[1], arguments[2] == "shm", options);
  if (!grapevine::ucx_built_in()) {
    std::printf("{\"skipped\":\"the ucx transport is not built in\"}\n");
    return 0;
  }
  const std::string which =
      arguments.empty() || arguments[0][0] == '-' ? std::string("both") : arguments[0];
  int failures = 0;
  for (const char* link : {"shm", "tcp"})
    if (which == "both" || which == link) failures += grapevine::probe(link, options);
  return failures == 0 ? 0 : 1;
}
