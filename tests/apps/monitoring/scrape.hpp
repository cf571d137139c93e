// The metrics of an endpoint as Prometheus reads them, for tests.
#pragma once
#include <string>

#include "apps/monitoring/metrics_endpoint.hpp"
#include "tests/apps/monitoring/http_get.hpp"

namespace grapevine {

// Without HTTP's headers; empty where there is no answer.
inline std::string scrape(const MetricsEndpoint& endpoint) {
  const std::string answer = http_get(endpoint.port(), "/metrics");
  const auto body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

}  // namespace grapevine
