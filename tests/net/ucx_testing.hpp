// What the tests of the UCX transport share with the programs that they start.
#pragma once
#include <cstdint>
#include <string>

#include "net/ucx.hpp"

namespace grapevine {

inline UcxOptions loopback_options() {
  UcxOptions options;
  options.net_devices = "lo";
  return options;
}

// One rank per process.
inline Placement placement(std::int32_t own_process, std::int32_t processes, bool same_host) {
  Placement placement;
  placement.own_process = own_process;
  for (std::int32_t p = 0; p < processes; ++p) {
    placement.process_of.push_back(p);
    placement.host_of.push_back(same_host ? "here" : "host" + std::to_string(p));
  }
  return placement;
}

}  // namespace grapevine
