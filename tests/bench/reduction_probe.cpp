// Dense and sparse all-reduces between processes over TCP, beside the cost model of the gTop-k
// paper with the latency and the time per number measured in the same run. tests/bench/slow_links
// runs it over slow links. One JSON line per reduction, from rank 0:
//   {"kind":"reduction","reduce":…,"ranks":P,"elements":d,"entries":k,"alpha_s":…,"beta_s":…,
//    "median_s":…,"model_s":…}
// Times are from a barrier to the result on rank 0. The lists are selected beforehand: this is the
// exchange with its merges, without selection and without the dense vector made of the result.
//
//   reduction_probe RANK RANKS HOST FOLDER ELEMENTS DENSITY ITERATIONS
//
// HOST is the address to listen on; in FOLDER the processes leave their addresses. Without
// arguments: two processes on loopback, a small vector.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/collectives/packed_collective.hpp"
#include "algorithms/collectives/ring_all_reduce.hpp"
#include "net/tcp/tcp.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kPings = 50;
constexpr std::int64_t kPingElements = 1 << 20;
constexpr std::chrono::seconds kTimeout{120};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "reduction_probe: %s\n", what.c_str());
  std::_Exit(1);
}

struct Options {
  Rank rank = 0;
  std::int32_t ranks = 2;
  std::string host = "127.0.0.1";
  std::string folder;
  std::int64_t elements = 10'000;
  double density = 0.01;
  int iterations = 1;

  std::int64_t entries() const {
    return std::max<std::int64_t>(
        1, static_cast<std::int64_t>(density * static_cast<double>(elements)));
  }
};

class Arrivals final : public Inbox {
 public:
  void deliver(Envelope envelope) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(envelope));
    changed_.notify_one();
  }
  void peer_down(Rank, const std::string&) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    down_ = true;
    changed_.notify_one();
  }
  Envelope next() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, kTimeout, [&] { return !queue_.empty() || down_; }))
      fail("nothing heard for " + std::to_string(kTimeout.count()) + " s");
    if (queue_.empty()) fail("another process has ended");
    Envelope envelope = std::move(queue_.front());
    queue_.pop_front();
    return envelope;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Envelope> queue_;
  bool down_ = false;
};

class Probe {
 public:
  explicit Probe(const Options& options) : o_(options), ranks_(static_cast<std::size_t>(o_.ranks)) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
    connect();
  }

  void run() {
    measure_link();
    const at::Tensor gradient =
        at::randn({o_.elements},
                  at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(o_.rank)),
                  at::TensorOptions());
    const Packed list = to_packed(select_top_k(gradient, o_.entries()));
    measure("dense", dense_model(), [&] { all_reduce(gradient.clone()); });
    measure("all-gather", gather_model(), [&] { reduce(SparseReduce::all_gather, list); });
    measure("butterfly", doublings() * (alpha_ + 2 * entries() * beta_),
            [&] { reduce(SparseReduce::butterfly, list); });
    measure("tree", 2 * doublings() * (alpha_ + 2 * entries() * beta_),
            [&] { reduce(SparseReduce::tree, list); });
    barrier();
  }

 private:
  // ---- Cost models (Shi et al. 2019), in seconds
  double entries() const { return static_cast<double>(o_.entries()); }
  double doublings() const { return std::ceil(std::log2(o_.ranks)); }
  double dense_model() const {
    const double p = o_.ranks;
    return 2 * alpha_ * (p - 1) + 2 * (p - 1) / p * static_cast<double>(o_.elements) * beta_;
  }
  double gather_model() const {
    return alpha_ * doublings() + 2 * (o_.ranks - 1.0) * entries() * beta_;
  }

  // ---- Reductions
  void all_reduce(at::Tensor vector) {
    RingAllReduce ring(ranks_, o_.rank, operation_);
    send(ring.start(std::move(vector)));
    for (Chunk& chunk : early_.take(operation_)) send(ring.on_chunk(std::move(chunk)));
    while (!ring.done()) {
      take(arrivals_->next());
      for (Chunk& chunk : early_.take(operation_)) send(ring.on_chunk(std::move(chunk)));
    }
    ++operation_;
  }
  void reduce(SparseReduce how, const Packed& list) {
    const auto collective = make_packed_collective(
        how, {ranks_, o_.rank, operation_, o_.elements, {{o_.elements, o_.entries()}}});
    send(collective->start(list, inbox_));
    while (!collective->done()) {
      take(arrivals_->next());
      send(collective->advance(inbox_));
    }
    ++operation_;
  }

  template <class F>
  void measure(const char* name, double model, F&& once) {
    std::vector<double> seconds;
    for (int i = 0; i < o_.iterations + 1; ++i) {
      barrier();
      const Clock::time_point begin = Clock::now();
      once();
      // The first one finds cold buffers.
      if (i > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    if (o_.rank != 0) return;
    std::sort(seconds.begin(), seconds.end());
    std::printf(
        "{\"kind\":\"reduction\",\"reduce\":\"%s\",\"ranks\":%d,\"elements\":%lld,\"entries\":%lld,"
        "\"alpha_s\":%.3g,\"beta_s\":%.3g,\"median_s\":%.4g,\"model_s\":%.4g}\n",
        name, o_.ranks, static_cast<long long>(o_.elements), static_cast<long long>(o_.entries()),
        alpha_, beta_, seconds[seconds.size() / 2], model);
    std::fflush(stdout);
  }

  // alpha: half a round trip of an empty message between ranks 0 and 1. beta: what a large one
  // takes longer, for each float.
  void measure_link() {
    const FrozenTensor large = FrozenTensor::freeze(at::zeros({kPingElements}));
    if (o_.rank == 1)
      for (int i = 0; i < 2 * kPings; ++i) {
        arrivals_->next();
        send_to(0, Chunk{});
      }
    if (o_.rank != 0) return;
    const auto round_trip = [&](const FrozenTensor& data) {
      std::vector<double> seconds;
      for (int i = 0; i < kPings; ++i) {
        const Clock::time_point begin = Clock::now();
        send_to(1, Chunk{0, 0, 0, data});
        // The others may be at their barrier already.
        for (Envelope e = arrivals_->next(); e.from != 1; e = arrivals_->next()) take(std::move(e));
        seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
      }
      std::sort(seconds.begin(), seconds.end());
      return seconds[seconds.size() / 2];
    };
    const double empty = round_trip({});
    alpha_ = empty / 2;
    beta_ = (round_trip(large) - empty) / static_cast<double>(kPingElements);
  }

  // ---- Messages
  void send_to(Rank to, Payload payload) {
    Envelope e;
    e.from = o_.rank;
    e.to = to;
    e.payload = std::move(payload);
    transport_->send(std::move(e));
  }
  template <class Message>
  void send(std::vector<Message> messages) {
    for (Message& message : messages) send_to(message.to, std::move(message.chunk));
  }
  void take(Envelope e) {
    if (auto* chunk = std::get_if<Chunk>(&e.payload)) return early_.hold(std::move(*chunk));
    if (auto* packed = std::get_if<PackedChunk>(&e.payload)) return inbox_.put(std::move(*packed));
    ++signals_;
  }
  // Rank 0 hears from all, and then tells all.
  void barrier() {
    const int wanted = o_.rank == 0 ? o_.ranks - 1 : 1;
    if (o_.rank != 0) send_to(0, Leave{});
    while (signals_ < wanted) take(arrivals_->next());
    signals_ -= wanted;
    if (o_.rank == 0)
      for (Rank r = 1; r < o_.ranks; ++r) send_to(r, Leave{});
  }

  // ---- Meeting
  fs::path address_file(Rank rank) const {
    return fs::path(o_.folder) / (std::to_string(rank) + ".address");
  }
  void connect() {
    TcpOptions options;
    options.host = o_.host;
    auto made = make_tcp_transport(options);
    if (!made) fail(made.error().message);
    transport_ = std::move(*made);
    const std::string mine = address_file(o_.rank).string();
    std::ofstream(mine + ".tmp") << transport_->address();
    fs::rename(mine + ".tmp", mine);
    std::vector<std::string> addresses;
    const Clock::time_point deadline = Clock::now() + kTimeout;
    Placement placement;
    placement.own_process = o_.rank;
    for (Rank r = 0; r < o_.ranks; ++r) {
      while (!fs::exists(address_file(r))) {
        if (Clock::now() > deadline) fail("rank " + std::to_string(r) + " has not started");
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      std::ifstream in(address_file(r));
      addresses.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
      placement.process_of.push_back(r);
      placement.host_of.push_back(std::to_string(r));
    }
    if (const auto connected = transport_->connect(addresses, placement, kTimeout); !connected)
      fail(connected.error().message);
    if (const auto attached = transport_->attach(o_.rank, arrivals_); !attached)
      fail(attached.error().message);
  }

  const Options o_;
  std::vector<Rank> ranks_;
  std::shared_ptr<Arrivals> arrivals_ = std::make_shared<Arrivals>();
  std::unique_ptr<RemoteTransport> transport_;
  std::int64_t operation_ = 0;
  CollectiveInbox early_;
  PackedInbox inbox_;
  int signals_ = 0;
  double alpha_ = 0, beta_ = 0;
};

int run_rank(const Options& options) {
  at::set_num_threads(1);
  Probe(options).run();
  return 0;
}

int run_smoke() {
  std::string folder = (fs::temp_directory_path() / "reduction-probe-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) fail(folder + " cannot be made");
  Options options;
  options.folder = folder;
  const pid_t child = ::fork();  // before there are threads
  if (child < 0) fail("no second process");
  options.rank = child == 0 ? 1 : 0;
  const int result = run_rank(options);
  if (child == 0) std::_Exit(result);
  int status = 0;
  ::waitpid(child, &status, 0);
  fs::remove_all(folder);
  return status == 0 ? result : 1;
}

}  // namespace

int probe(int count, char** arguments) {
  if (count == 1) return run_smoke();
  if (count != 8) fail("RANK RANKS HOST FOLDER ELEMENTS DENSITY ITERATIONS");
  Options o;
  o.rank = std::atoi(arguments[1]);
  o.ranks = std::atoi(arguments[2]);
  o.host = arguments[3];
  o.folder = arguments[4];
  o.elements = std::atoll(arguments[5]);
  o.density = std::atof(arguments[6]);
  o.iterations = std::atoi(arguments[7]);
  if (o.ranks < 2 || o.rank < 0 || o.rank >= o.ranks || o.elements < 1 || o.iterations < 1)
    fail("an argument is out of range");
  return run_rank(o);
}

}  // namespace grapevine

int main(int count, char** arguments) { return grapevine::probe(count, arguments); }
