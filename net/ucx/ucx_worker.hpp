// Owners of UCX's objects. Compiled only where UCX is there (GRAPEVINE_UCX).
#pragma once
#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "messages/expected.hpp"
#include "net/ucx/ucx.hpp"

namespace grapevine::ucx {

// Which way messages of models on GPUs go, by Worker::memory_types(), in words for the log.
std::string say_memory(std::uint64_t memory_types);

// A context with one worker, by which a process reaches all others. Not thread-safe: calls
// (UCX's own on handle() as well) are to be made one at a time, from any thread.
class Worker {
 public:
  // Errors (io): UCX's text, and the options that it concerns.
  static Expected<std::unique_ptr<Worker>> make(const UcxOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_worker_h handle() const { return worker_; }
  // Where other workers reach this one: over all transports, or over the network only.
  const std::string& address() const { return address_; }
  const std::string& network_address() const { return network_address_; }
  // The kinds of memory that UCX can send from and receive into: bits of ucs_memory_type_t.
  std::uint64_t memory_types() const { return memory_types_; }
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
  std::uint64_t memory_types_ = 0;
  std::string address_;
  std::string network_address_;
  int descriptor_ = -1;
};

}  // namespace grapevine::ucx
