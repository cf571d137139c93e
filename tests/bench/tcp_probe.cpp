// Point to point over the TCP transport, two processes on loopback. One JSON line per size:
//   {"kind":"p2p","transport":"tcp","bytes":…,"median_s":…,"bandwidth_gbps":…}
//   {"kind":"round_trip","transport":"tcp","bytes":8,"median_s":…}
// p2p: from send() to the arrival of an answer without payload, thus one message and half a round
// trip more than the payload takes; GB/s, 10^9 bytes. The payload is checked once per size.
#include <ATen/ops/full.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/tcp/tcp.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

bool smoke() { return std::getenv("GRAPEVINE_BENCH_SMOKE") != nullptr; }

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "tcp_probe: %s\n", what.c_str());
  std::_Exit(1);
}

class Arrivals final : public Inbox {
 public:
  void deliver(Envelope envelope) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    last_ = std::move(envelope);
    ++count_;
    changed_.notify_one();
  }
  void peer_down(Rank, const std::string&) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    down_ = true;
    changed_.notify_one();
  }

  // The next one; false where the other process has ended.
  bool next(Envelope& envelope) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return count_ > 0 || down_; });
    if (count_ == 0) return false;
    --count_;
    envelope = std::move(last_);
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Envelope last_;
  int count_ = 0;
  bool down_ = false;
};

struct End {
  std::unique_ptr<RemoteTransport> transport;
  std::shared_ptr<Arrivals> inbox = std::make_shared<Arrivals>();
  Rank rank = 0;

  void send(FrozenTensor payload) {
    Envelope e;
    e.from = rank;
    e.to = 1 - rank;
    e.payload = Chunk{0, 0, 0, std::move(payload)};
    transport->send(std::move(e));
  }
};

std::unique_ptr<RemoteTransport> listen() {
  TcpOptions options;
  options.host = "127.0.0.1";
  auto made = make_tcp_transport(options);
  if (!made) fail(made.error().message);
  return std::move(*made);
}

void connect(End& end, const std::string& first_address) {
  Placement placement;
  placement.process_of = {0, 1};
  placement.host_of = {"loopback", "loopback"};
  placement.own_process = end.rank;
  const auto connected = end.transport->connect({first_address, end.transport->address()},
                                                placement, std::chrono::seconds(30));
  if (!connected) fail(connected.error().message);
  const auto attached = end.transport->attach(end.rank, end.inbox);
  if (!attached) fail(attached.error().message);
}

// Answers a large message with an empty one, a small one with itself.
int answer(int address_pipe) {
  std::array<char, 64> address{};
  if (::read(address_pipe, address.data(), address.size() - 1) <= 0) fail("no address");
  End end;
  end.rank = 1;
  end.transport = listen();
  connect(end, address.data());
  Envelope e;
  while (end.inbox->next(e)) {
    FrozenTensor data = std::move(std::get<Chunk>(e.payload).data);
    const auto* bytes = data.data<std::uint8_t>();
    if (bytes[0] != 42 || bytes[data.nbytes() / 2] != 42 || bytes[data.nbytes() - 1] != 42)
      fail("damaged payload");
    end.send(data.nbytes() > 8 ? FrozenTensor() : data);
  }
  return 0;
}

double median_seconds(End& end, const FrozenTensor& payload, int iterations) {
  std::vector<double> seconds;
  Envelope answer;
  for (int i = 0; i < iterations + 2; ++i) {
    const Clock::time_point start = Clock::now();
    end.send(payload);
    if (!end.inbox->next(answer)) fail("the other process has ended");
    const double s = std::chrono::duration<double>(Clock::now() - start).count();
    if (i >= 2) seconds.push_back(s);  // the first ones find cold buffers
  }
  std::nth_element(seconds.begin(), seconds.begin() + iterations / 2, seconds.end());
  return seconds[static_cast<std::size_t>(iterations) / 2];
}

FrozenTensor payload_of_bytes(std::int64_t bytes) {
  return FrozenTensor::freeze(at::full({bytes}, 42, at::kByte));
}

int measure(int address_pipe) {
  End end;
  end.transport = listen();
  const std::string address = end.transport->address();
  if (::write(address_pipe, address.data(), address.size()) < 0) fail("no pipe");
  connect(end, address);
  for (const std::int64_t bytes : {1'000'000, 25'000'000, 100'000'000}) {
    const int iterations = smoke() ? 1 : bytes > 50'000'000 ? 15 : 51;
    const double s = median_seconds(end, payload_of_bytes(bytes), iterations);
    std::printf(
        "{\"kind\":\"p2p\",\"transport\":\"tcp\",\"bytes\":%lld,\"median_s\":%.6g,"
        "\"bandwidth_gbps\":%.4g}\n",
        static_cast<long long>(bytes), s, static_cast<double>(bytes) / s * 1e-9);
    if (smoke()) break;
  }
  const double s = median_seconds(end, payload_of_bytes(8), smoke() ? 10 : 5000);
  std::printf("{\"kind\":\"round_trip\",\"transport\":\"tcp\",\"bytes\":8,\"median_s\":%.6g}\n", s);
  return 0;
}

int run() {
  std::array<int, 2> address_pipe{};
  if (::pipe(address_pipe.data()) != 0) fail("no pipe");
  const pid_t child = ::fork();  // before there are threads
  if (child < 0) fail("no second process");
  if (child == 0) std::_Exit(answer(address_pipe[0]));
  const int result = measure(address_pipe[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? result : 1;
}

}  // namespace
}  // namespace grapevine

int main() { return grapevine::run(); }
