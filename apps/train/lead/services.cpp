#include "apps/train/lead/services.hpp"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "apps/control/status_json.hpp"
#include "apps/monitoring/metrics_endpoint.hpp"
#include "apps/monitoring/tensorboard_log.hpp"
#include "apps/train/summary.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

RunDescription facts_of(const TrainJob& job) {
  const TrainOptions& o = job.options;
  return {o.algorithm,    o.model,           o.data,    o.transport, job.out,
          machine_name(), GRAPEVINE_VERSION, ::getpid()};
}

// For the page of the metrics port.
std::function<Expected<nlohmann::ordered_json>()> status_source(const TrainJob& job) {
  return [hub = job.run.control, facts = facts_of(job)]() -> Expected<nlohmann::ordered_json> {
    const auto status = hub->status();
    if (!status) return status.error();
    return status_json(*status, facts);
  };
}

}  // namespace

Expected<void> add_followers(const TrainJob& job, const std::vector<Step>& first_steps,
                             RunOutput& output, RunDisplay& display) {
  const TrainOptions& o = job.options;
  if (o.tensorboard) {
    auto log =
        TensorBoardLog::create(job.out + "/tensorboard", first_steps,
                               [&output](const std::string& message) { output.warn(message); });
    if (!log) return log.error();
    output.add_follower(*std::move(log));
  }
  if (o.metrics_port.empty()) return {};
  const auto place = parse_named_address("--metrics-port", o.metrics_port);
  if (!place) return place.error();
  if (!o.tls.empty() && !is_loopback_host(place->host))
    spdlog::warn("--metrics-port {}: its figures are not encrypted, also with --tls",
                 o.metrics_port);
  auto endpoint =
      MetricsEndpoint::create(*place, {o.algorithm, o.model, o.data, o.transport, GRAPEVINE_VERSION,
                                       o.workers, job.run.ranks, status_source(job)});
  if (!endpoint) return endpoint.error();
  display.say_error("metrics: " + (*endpoint)->url() + "\n");
  output.add_follower(*std::move(endpoint));
  return {};
}

Expected<ControlServers> listen_for_control(const TrainJob& job, RunOutput& output,
                                            RunDisplay& display) {
  const TrainOptions& o = job.options;
  const auto& hub = job.run.control;
  const RunDescription facts = facts_of(job);
  ControlServers servers;
  // Some file systems have no sockets: that is no reason not to train.
  auto local = ControlServer::on_socket(job.out, hub, facts);
  if (local)
    servers.push_back(*std::move(local));
  else
    output.warn("'grapevine control' cannot reach this run: " + local.error().message);
  if (o.control.empty()) return ControlServers(std::move(servers));
  const auto place = parse_listen_address("--control", o.control);
  if (!place) return place.error();
  const char* secret = std::getenv(kJobTokenVariable);
  auto remote =
      ControlServer::on_port(*place, secret == nullptr ? "" : secret, hub, facts, o.certificates);
  if (!remote) return remote.error();
  display.say_error(
      "control: " + tcp::join_address(place->host, static_cast<std::uint16_t>((*remote)->port())) +
      "\n");
  servers.push_back(*std::move(remote));
  return ControlServers(std::move(servers));
}

}  // namespace grapevine
