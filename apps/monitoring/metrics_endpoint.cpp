#include "apps/monitoring/metrics_endpoint.hpp"

// Prometheus' own server (CivetWeb) gives its threads stacks of 100 KiB, which LibTorch's libraries
// alone fill with their thread-local storage: such a thread cannot be started in this process.
#include <httplib.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "apps/console/json_text.hpp"
#include "apps/monitoring/bounded_server.hpp"
#include "apps/monitoring/live_metrics.hpp"
#include "apps/monitoring/live_page.hpp"
#include "apps/monitoring/metric_families.hpp"
#include "apps/monitoring/own_hosts.hpp"
#include "messages/text/log_limits.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tcp_dial.hpp"

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

constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// A port alone is one of loopback.
std::string as_given(const ListenAddress& address) {
  const std::string place = address.host == ListenAddress().host
                                ? std::to_string(address.port)
                                : tcp::join_address(address.host, address.port);
  return (address.name.empty() ? "" : address.name + "@") + place;
}

}  // namespace

struct MetricsEndpoint::Impl {
  // The port. Errors as BoundedServer's.
  Expected<std::uint16_t> bind(const ListenAddress& at) {
    own_hosts.emplace(std::vector<std::string>{at.host, at.name});
    // Before the library reads a body: it would take one of any length into memory.
    server.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          if (!own_hosts->include(request.get_header_value("Host"))) return refuse_host(response);
          if (request.method == "GET" || request.method == "HEAD")
            return httplib::Server::HandlerResponse::Unhandled;
          response.status = 405;
          response.set_header("Allow", "GET, HEAD");
          log_refusal("its request is neither GET nor HEAD");
          return httplib::Server::HandlerResponse::Handled;
        });
    server.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      const std::string text = prometheus::TextSerializer().Serialize(registry->Collect());
      response.set_content(text, kContentType);
    });
    if (status) add_page();
    server.on_cut_off([this](const std::string& why) { log_refusal(why); });
    return server.listen_at(at);
  }

  // On any thread. Each kind of refusal has a line of its own, at a bounded rate.
  void log_refusal(const std::string& why) {
    if (const auto more = refusals.admit(why))
      spdlog::warn("metrics: a client is refused: {}{}", why, *more);
  }

  httplib::Server::HandlerResponse refuse_host(httplib::Response& response) {
    constexpr int kForbidden = 403;
    log_refusal("its request names another host: give the name in --metrics-port NAME@HOST:PORT");
    response.status = kForbidden;
    response.set_content(
        "this server has another name: use its address, or give the name in --metrics-port "
        "NAME@HOST:PORT\n",
        "text/plain");
    return httplib::Server::HandlerResponse::Handled;
  }

  void add_page() {
    server.Get("/", [](const httplib::Request&, httplib::Response& response) {
      response.set_header("Content-Security-Policy", live_page_policy());
      response.set_header("X-Content-Type-Options", "nosniff");
      response.set_content(live_page(), "text/html; charset=utf-8");
    });
    server.Get("/status.json", [this](const httplib::Request&, httplib::Response& response) {
      constexpr int kUnavailable = 503;
      const auto now = status();
      if (!now) response.status = kUnavailable;
      response.set_header("Cache-Control", "no-store");
      response.set_header("X-Content-Type-Options", "nosniff");
      response.set_content(
          json_text(now ? *now : nlohmann::ordered_json{{"error", now.error().message}}),
          "application/json");
    });
  }

  // One series at every moment: its labels are those of the run as it is now.
  void describe_run() {
    if (info != nullptr) run_info.Remove(info);
    info = &run_info.Add({{"algorithm", labels.algorithm},
                          {"model", labels.model},
                          {"data", labels.data},
                          {"transport", labels.transport},
                          {"version", labels.version}});
    info->Set(1);
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
  Family<Gauge>& run_info =
      gauge_family(*registry, "grapevine_run_info", "1; the labels describe the run.");
  RunLabels labels;
  Gauge* info = nullptr;  // the present series of run_info
  std::map<Rank, RankMetrics> ranks;
  std::optional<LiveMetrics> live;  // set by create()

  std::function<Expected<nlohmann::ordered_json>()> status;  // null: no page
  std::optional<OwnHosts> own_hosts;                         // from bind() on
  LogLimits refusals;
  BoundedServer server;
  ListenAddress address;  // with the port that it has
};

Expected<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::create(const ListenAddress& address,
                                                                   const RunLabels& labels) {
  auto impl = std::make_unique<Impl>();
  impl->labels = labels;
  impl->describe_run();
  gauge_family(*impl->registry, "grapevine_workers", "Ranks that train.")
      .Add({})
      .Set(static_cast<double>(labels.workers));
  impl->live.emplace(*impl->registry, labels.workers, std::max(labels.workers, labels.ranks));
  impl->status = labels.status;
  const auto bound = impl->bind(address);
  if (!bound)
    return bad_input("--metrics-port " + as_given(address) +
                     ": cannot listen there: " + bound.error().message);
  impl->address = {address.host, *bound, address.name};
  impl->server.serve();
  return std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(std::move(impl)));
}

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
// A client may send its request slowly: the run does not wait for its end, and what
// serves it stays until the process goes, with all that it uses.
MetricsEndpoint::~MetricsEndpoint() {
  if (impl_->server.stop_serving()) return;
  impl_->server.abandon();
  static_cast<void>(impl_.release());
}

std::uint16_t MetricsEndpoint::port() const { return impl_->address.port; }

std::string MetricsEndpoint::url() const {
  const std::string& host = impl_->address.host;
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

void MetricsEndpoint::on_changed(const LiveSettings& changed) {
  const auto algorithm = changed.find(kAlgorithmSetting);
  if (algorithm == changed.end() || algorithm->second == impl_->labels.algorithm) return;
  impl_->labels.algorithm = algorithm->second;
  impl_->describe_run();
}

void MetricsEndpoint::on_validation(Epoch epoch, Step /*step*/, const Evaluation& evaluation) {
  impl_->validation_loss.Add({}).Set(evaluation.loss);
  if (std::isfinite(evaluation.top1)) impl_->validation_top1.Add({}).Set(evaluation.top1);
  impl_->validation_epochs.Add({}).Set(static_cast<double>(epoch + 1));
}

void MetricsEndpoint::on_checkpoint() { impl_->checkpoints.Increment(); }
void MetricsEndpoint::on_warning() { impl_->warnings.Increment(); }

}  // namespace grapevine
