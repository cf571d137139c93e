// RunDescription: what does not change in a running job.
#pragma once
#include <cstdint>
#include <string>

namespace grapevine {

struct RunDescription {
  std::string algorithm, model, data, transport, out, host, version;
  std::int64_t pid = 0;  // of process 0
};

}  // namespace grapevine
