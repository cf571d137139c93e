// ControlClient: asks a running job how it does, and changes it.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "messages/expected.hpp"

namespace grapevine {

// Not thread-safe. No call blocks for longer than a few seconds.
class ControlClient {
 public:
  // `target`: the folder of a run, HOST:PORT of its --control, or that of the first of the nodes
  // that run it now. `lookup` reads the environment. Of the secrets the first counts:
  // `secret_file` of the nodes, as the command line has it; GRAPEVINE_JOB_TOKEN of a --control;
  // GRAPEVINE_SECRET_FILE, then GRAPEVINE_CLUSTER_SECRET of the nodes. `tls`: the folder of
  // certificates for HOST:PORT; empty: without TLS. Errors: bad_input (it is none of
  // these; the run has ended; the nodes run no job; no secret is set; the certificates are not
  // valid); those of find_pool_job().
  static Expected<ControlClient> find(const std::string& target,
                                      const std::function<const char*(const char*)>& lookup,
                                      const std::string& tls = "",
                                      const std::string& secret_file = "");
  ControlClient(ControlClient&& other) noexcept;
  ControlClient& operator=(ControlClient&& other) noexcept;
  ~ControlClient();

  // An object that has the members which docs/control.md lists. Errors: bad_input (the run has
  // ended; the secret is wrong), timeout (its process 0 does not answer), protocol.
  Expected<nlohmann::ordered_json> status();
  // `change`: stop, checkpoint, drain or set. Returns what happens now. Errors: the same;
  // bad_input: the run refuses it, and why.
  Expected<std::string> ask(const std::string& change, const nlohmann::ordered_json& arguments);

 private:
  struct Impl;
  explicit ControlClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace grapevine
