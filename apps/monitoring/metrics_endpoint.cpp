#include "apps/monitoring/metrics_endpoint.hpp"

// Prometheus' own server (CivetWeb) gives its threads stacks of 100 KiB, which LibTorch's libraries
// alone fill with their thread-local storage: such a thread cannot be started in this process.
#include <httplib.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "apps/monitoring/live_metrics.hpp"
#include "apps/monitoring/metric_families.hpp"
#include "net/addresses.hpp"

namespace grapevine {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;

// Seconds; steps of small models take less than the first, a step in which a rank is lost more than
// the last.
const Histogram::BucketBoundaries kStepSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                  0.25,  0.5,    1,     2.5,  5,     10,   30};

// A gauge without a value that was measured keeps the last one.
void set(Gauge& gauge, double value) {
  if (std::isfinite(value)) gauge.Set(value);
}

void add(Counter& counter, double value) {
  if (std::isfinite(value) && value > 0) counter.Increment(value);
}

constexpr int kServerThreads = 2;
constexpr std::size_t kMostWaiting = 64;              // requests
constexpr std::size_t kLongestRequest = 16 * 1024;    // bytes
constexpr std::chrono::seconds kRequestPatience{10};  // for all of it and the answer
constexpr std::chrono::seconds kClosePatience{1};
constexpr std::chrono::milliseconds kClientPoll{1};
constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr int kMaxPort = 65535;

using Clock = std::chrono::steady_clock;

// One request and its answer over a socket, with bounds on its size and its time.
class BoundedStream final : public httplib::Stream {
 public:
  explicit BoundedStream(socket_t socket) : socket_(socket) {}

  bool is_readable() const override { return wait(POLLIN); }
  bool is_writable() const override { return wait(POLLOUT); }
  ssize_t read(char* into, std::size_t size) override {
    if (at_ == end_) {
      if (read_ >= kLongestRequest || !wait(POLLIN)) return -1;
      const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (got <= 0) return got;
      read_ += static_cast<std::size_t>(got);
      at_ = 0;
      end_ = static_cast<std::size_t>(got);
    }
    const std::size_t given = std::min(size, end_ - at_);
    std::memcpy(into, buffer_.data() + at_, given);
    at_ += given;
    return static_cast<ssize_t>(given);
  }
  ssize_t write(const char* from, std::size_t size) override {
    return wait(POLLOUT) ? ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
  }
  // For handlers that use addresses; here none does.
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return socket_; }

 private:
  bool wait(short events) const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    pollfd waited{socket_, events, 0};
    return left.count() > 0 && ::poll(&waited, 1, static_cast<int>(left.count())) > 0;
  }

  const socket_t socket_;
  const Clock::time_point deadline_ = Clock::now() + kRequestPatience;
  std::array<char, 4096> buffer_{};
  std::size_t at_ = 0, end_ = 0;
  std::size_t read_ = 0;  // bytes in all
};

// The library's queue has no bound. Tasks beyond ours run at once, on the thread that accepts,
// as refused.
class BoundedQueue final : public httplib::TaskQueue {
 public:
  static bool refuses() { return refuses_; }

  void enqueue(std::function<void()> serve) override {
    if (waiting_->fetch_add(1) >= kMostWaiting) {
      refuses_ = true;
      serve();
      refuses_ = false;
      --*waiting_;
      return;
    }
    threads_.enqueue([serve = std::move(serve), waiting = waiting_] {
      serve();
      --*waiting;
    });
  }
  void shutdown() override { threads_.shutdown(); }

 private:
  static thread_local bool refuses_;
  const std::shared_ptr<std::atomic<std::size_t>> waiting_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  httplib::ThreadPool threads_{kServerThreads};
};

thread_local bool BoundedQueue::refuses_ = false;

// One request a connection, over a BoundedStream.
class BoundedServer final : public httplib::Server {
 private:
  bool process_and_close_socket(socket_t socket) override {
    bool served = false;
    if (!BoundedQueue::refuses()) {
      BoundedStream stream(socket);
      bool closed = false;
      served = process_request(stream, true, closed, nullptr);
    }
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return served;
  }
};

}  // namespace

Expected<MetricsPlace> parse_metrics_place(const std::string& text) {
  const auto refused = [&] {
    return bad_input("--metrics-port " + text +
                     ": expected PORT or HOST:PORT, with a port from 1 to 65535, or 0 for one that "
                     "is free");
  };
  MetricsPlace place;
  const auto colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  if (colon != std::string::npos) {
    place.host = text.substr(0, colon);
    const bool bracketed =
        place.host.size() > 2 && place.host.front() == '[' && place.host.back() == ']';
    if (bracketed) place.host = place.host.substr(1, place.host.size() - 2);
    if (place.host.empty() || (!bracketed && place.host.find(':') != std::string::npos))
      return refused();
  }
  const auto [end, wrong] = std::from_chars(port.data(), port.data() + port.size(), place.port);
  if (wrong != std::errc() || end != port.data() + port.size() || place.port < 0 ||
      place.port > kMaxPort)
    return refused();
  return place;
}

struct MetricsEndpoint::Impl {
  // False: a client that is served holds on.
  bool stop() {
    if (!serving.joinable()) return true;
    server.stop();
    if (ended.wait_for(kClosePatience) != std::future_status::ready) return false;
    serving.join();
    return true;
  }

  // The port, or nothing where it cannot listen there; then errno gives the reason.
  std::optional<int> bind(const std::string& host, int port) {
    server.new_task_queue = [] { return new BoundedQueue; };
    // Not SO_REUSEPORT, the library's choice: two runs would share a port.
    server.set_socket_options([](auto socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    // Before the library reads a body: it would take one of any length into memory.
    server.set_pre_routing_handler(
        [](const httplib::Request& request, httplib::Response& response) {
          if (request.method == "GET" || request.method == "HEAD")
            return httplib::Server::HandlerResponse::Unhandled;
          response.status = 405;
          response.set_header("Allow", "GET, HEAD");
          return httplib::Server::HandlerResponse::Handled;
        });
    server.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      const std::string text = prometheus::TextSerializer().Serialize(registry->Collect());
      response.set_content(text, kContentType);
    });
    errno = 0;
    const int bound = port == 0 ? server.bind_to_any_port(host.c_str()) : port;
    const bool listens = port == 0 ? bound > 0 : server.bind_to_port(host.c_str(), port);
    return listens ? std::optional<int>(bound) : std::nullopt;
  }

  void serve() {
    std::promise<void> end;
    ended = end.get_future();
    serving = std::thread([this, end = std::move(end)]() mutable {
      server.listen_after_bind();
      end.set_value();
    });
    // stop() does nothing before this.
    while (!server.is_running() && ended.wait_for(kClientPoll) != std::future_status::ready) {
    }
  }

  // The figures of one rank, made when its first step is reported.
  struct RankMetrics {
    Counter& steps;
    Counter& samples;
    Counter& exchange_wait;
    Counter& data_wait;
    Gauge& step;
    Gauge& epoch;
    Gauge& loss;
    Gauge& top1;
    Gauge& lr;
    Gauge& staleness;
  };

  RankMetrics& of(Rank rank) {
    const auto found = ranks.find(rank);
    if (found != ranks.end()) return found->second;
    const prometheus::Labels label = {{"rank", std::to_string(rank)}};
    return ranks
        .emplace(rank,
                 RankMetrics{steps.Add(label), samples.Add(label), exchange_wait.Add(label),
                             data_wait.Add(label), step.Add(label), epoch.Add(label),
                             loss.Add(label), top1.Add(label), lr.Add(label), staleness.Add(label)})
        .first->second;
  }

  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  Family<Counter>& steps = counter_family(*registry, "grapevine_steps_total",
                                          "Steps that the rank has finished in this run.");
  Family<Counter>& samples = counter_family(*registry, "grapevine_samples_total",
                                            "Samples that the rank has trained on in this run.");
  Family<Counter>& exchange_wait =
      counter_family(*registry, "grapevine_exchange_wait_seconds_total",
                     "Time that the rank has waited for other ranks between steps.");
  Family<Counter>& data_wait =
      counter_family(*registry, "grapevine_data_wait_seconds_total",
                     "Time that the rank's worker has waited for its batches.");
  Family<Gauge>& step =
      gauge_family(*registry, "grapevine_step", "The step that the rank finished last, from 0.");
  Family<Gauge>& epoch =
      gauge_family(*registry, "grapevine_epoch", "The epoch in which that step began.");
  Family<Gauge>& loss = gauge_family(*registry, "grapevine_loss", "Training loss in that step.");
  Family<Gauge>& top1 =
      gauge_family(*registry, "grapevine_top1_ratio", "Training accuracy in that step, 0 to 1.");
  Family<Gauge>& lr =
      gauge_family(*registry, "grapevine_learning_rate", "Learning rate in that step.");
  Family<Gauge>& staleness =
      gauge_family(*registry, "grapevine_staleness_steps",
                   "Mean staleness of the updates that were applied in that step.");
  Histogram& step_seconds = prometheus::BuildHistogram()
                                .Name("grapevine_step_seconds")
                                .Help("Time from one step of a rank to its next, all ranks.")
                                .Register(*registry)
                                .Add({}, kStepSeconds);
  Family<Gauge>& validation_loss = gauge_family(*registry, "grapevine_validation_loss",
                                                "Of the averaged model, last validation.");
  Family<Gauge>& validation_top1 = gauge_family(*registry, "grapevine_validation_top1_ratio",
                                                "Of the averaged model, last validation, 0 to 1.");
  Family<Gauge>& validation_epochs =
      gauge_family(*registry, "grapevine_validation_epochs", "Epochs before the last validation.");
  Counter& checkpoints =
      counter_family(*registry, "grapevine_checkpoints_total", "Checkpoints written in this run.")
          .Add({});
  Counter& warnings =
      counter_family(*registry, "grapevine_warnings_total", "Warnings logged in this run.").Add({});
  std::map<Rank, RankMetrics> ranks;
  std::optional<LiveMetrics> live;  // set by create()

  BoundedServer server;
  MetricsPlace place;       // with the port that it has
  std::future<void> ended;  // ready: no connection is served any more
  std::thread serving;
};

Expected<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::create(const MetricsPlace& place,
                                                                   const RunLabels& labels) {
  auto impl = std::make_unique<Impl>();
  gauge_family(*impl->registry, "grapevine_run_info", "1; the labels describe the run.")
      .Add({{"algorithm", labels.algorithm},
            {"model", labels.model},
            {"data", labels.data},
            {"transport", labels.transport},
            {"version", labels.version}})
      .Set(1);
  gauge_family(*impl->registry, "grapevine_workers", "Ranks that train.")
      .Add({})
      .Set(static_cast<double>(labels.workers));
  impl->live.emplace(*impl->registry, labels.workers, std::max(labels.workers, labels.ranks));
  const std::optional<int> bound = impl->bind(place.host, place.port);
  if (!bound)
    return bad_input("--metrics-port " + std::to_string(place.port) + ": cannot listen at " +
                     place.host + ": " + (errno != 0 ? std::strerror(errno) : "no such address") +
                     ": choose another port, or 0 for one that is free");
  impl->place = {place.host, *bound};
  impl->serve();
  return std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(std::move(impl)));
}

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
// A client may send its request slowly: the run does not wait for its end, and what
// serves it stays until the process goes, with all that it uses.
MetricsEndpoint::~MetricsEndpoint() {
  if (impl_->stop()) return;
  impl_->serving.detach();
  static_cast<void>(impl_.release());
}

int MetricsEndpoint::port() const { return impl_->place.port; }

std::string MetricsEndpoint::url() const {
  const std::string& host = impl_->place.host;
  const std::string shown = host == "0.0.0.0" || host == "::"     ? machine_name()
                            : host.find(':') != std::string::npos ? "[" + host + "]"
                                                                  : host;
  return "http://" + shown + ":" + std::to_string(port()) + "/metrics";
}

void MetricsEndpoint::on_step(const StepReport& report) {
  Impl::RankMetrics& figures = impl_->of(report.rank);
  figures.steps.Increment();
  add(figures.samples, static_cast<double>(report.samples));
  add(figures.exchange_wait, report.exchange_time_s);
  add(figures.data_wait, report.data_time_s);
  set(figures.step, static_cast<double>(report.step));
  set(figures.epoch, report.epoch);
  // A loss that is not a number must cause an alert.
  figures.loss.Set(report.loss);
  set(figures.top1, report.top1);
  set(figures.lr, report.lr);
  set(figures.staleness, report.staleness);
  if (std::isfinite(report.batch_time_s)) impl_->step_seconds.Observe(report.batch_time_s);
  impl_->live->on_step(report);
}

void MetricsEndpoint::on_figures(const RankFigures& figures) { impl_->live->on_figures(figures); }
void MetricsEndpoint::on_rank_lost(Rank rank) { impl_->live->on_rank_lost(rank); }

void MetricsEndpoint::on_rank_returned(Rank rank) { impl_->live->on_rank_returned(rank); }

void MetricsEndpoint::on_validation(Epoch epoch, Step /*step*/, const Evaluation& evaluation) {
  impl_->validation_loss.Add({}).Set(evaluation.loss);
  if (std::isfinite(evaluation.top1)) impl_->validation_top1.Add({}).Set(evaluation.top1);
  impl_->validation_epochs.Add({}).Set(static_cast<double>(epoch + 1));
}

void MetricsEndpoint::on_checkpoint() { impl_->checkpoints.Increment(); }
void MetricsEndpoint::on_warning() { impl_->warnings.Increment(); }

}  // namespace grapevine
