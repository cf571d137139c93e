// The links of one process to the others of its job, on one host.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "net/process_links.hpp"
#include "net/shm/shm_greeting.hpp"

namespace grapevine::shm {

// The transport's thread changes them, connect() waits for them. Thread-safe.
class ShmLinks : public ProcessLinks {
 public:
  ShmLinks(const Placement& placement, std::vector<std::string> names, const JobToken& token,
           const std::vector<std::int32_t>& absent)
      : ProcessLinks(placement, std::move(names), absent),
        own_{own_process(), ProcessLinks::placement(), token} {}

  const LinkIdentity& own() const { return own_; }

 private:
  const LinkIdentity own_;
};

}  // namespace grapevine::shm
