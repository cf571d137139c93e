// Owners of UCX's objects. Compiled only where UCX is there (GRAPEVINE_UCX).
#pragma once
#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "messages/expected.hpp"
#include "net/ucx.hpp"

namespace grapevine::ucx {

// A context with one worker: what a process needs to talk to all others. Not thread-safe: calls
// (UCX's own on handle() as well) are to be made one at a time, from any thread.
class Worker {
 public:
  // Errors (io): UCX's words, and which options they are about.
  static Expected<std::unique_ptr<Worker>> make(const UcxOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_worker_h handle() const { return worker_; }
  // Where other workers reach this one: over whatever there is, or over the network only.
  const std::string& address() const { return address_; }
  const std::string& network_address() const { return network_address_; }
  // Readable when there is something to progress, once arm() returned true.
  int descriptor() const { return descriptor_; }
  // False: there is something to progress now.
  bool arm() { return ucp_worker_arm(worker_) == UCS_OK; }

 private:
  Worker() = default;
  Expected<void> open(const UcxOptions& options);
  Expected<void> query();
  Expected<std::string> query_address(unsigned flags);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  std::string network_address_;
  int descriptor_ = -1;
};

}  // namespace grapevine::ucx
