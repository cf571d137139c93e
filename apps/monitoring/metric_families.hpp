// Families of metrics, as the endpoint registers them.
#pragma once
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

namespace grapevine {

inline prometheus::Family<prometheus::Counter>& counter_family(prometheus::Registry& registry,
                                                               const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

inline prometheus::Family<prometheus::Gauge>& gauge_family(prometheus::Registry& registry,
                                                           const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

}  // namespace grapevine
