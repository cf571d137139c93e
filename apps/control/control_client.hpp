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
  // `target`: the folder of a run, or HOST:PORT of its --control. `lookup` reads the environment.
  // `tls`: the folder of certificates for HOST:PORT; empty: without TLS. Errors (bad_input): it is
  // neither; the run has ended; no secret is set; the certificates are not valid.
  static Expected<ControlClient> find(const std::string& target,
                                      const std::function<const char*(const char*)>& lookup,
                                      const std::string& tls = "");
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
