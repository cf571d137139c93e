#include "apps/train/live/listening_check.hpp"

#include <cstdlib>
#include <memory>

#include "apps/control/control_server.hpp"
#include "apps/monitoring/metrics_endpoint.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

Expected<void> check_control(const std::string& control) {
  const auto place = parse_listen_address("--control", control);
  if (!place) return place.error();
  const char* const secret = std::getenv(kJobTokenVariable);
  auto opened = ControlServer::on_port(*place, secret == nullptr ? "" : secret,
                                       std::make_shared<ControlHub>(), {}, nullptr);
  if (!opened) return opened.error();
  return {};
}

Expected<void> check_metrics(const std::string& metrics_port) {
  const auto place = parse_named_address("--metrics-port", metrics_port);
  if (!place) return place.error();
  auto opened = MetricsEndpoint::create(*place, RunLabels{});
  if (!opened) return opened.error();
  return {};
}

}  // namespace

Expected<void> check_control_address(const TrainOptions& options) {
  if (options.control.empty()) return {};
  if (auto place = parse_listen_address("--control", options.control); !place) return place.error();
  return {};
}

Expected<void> check_listening(const TrainOptions& options) {
  if (!options.control.empty())
    if (auto checked = check_control(options.control); !checked) return checked;
  if (options.metrics_port.empty()) return {};
  return check_metrics(options.metrics_port);
}

}  // namespace grapevine
