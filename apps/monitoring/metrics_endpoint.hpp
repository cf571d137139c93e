// MetricsEndpoint: a run's figures over HTTP for Prometheus, `train --metrics-port P`.
#pragma once
#include <memory>
#include <string>

#include "apps/monitoring/run_follower.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// What grapevine_run_info says of a run.
struct RunLabels {
  std::string algorithm, model, data, transport, version;
  std::int64_t workers = 0;
};

// Answers GET /metrics in Prometheus' text format, in threads of its own, as long as it lives. It
// tells and takes nothing else: whoever reaches the port may read the figures.
class MetricsEndpoint final : public RunFollower {
 public:
  // `host`: the address to listen at; empty: all of this machine. `port`: 0 for one that is free.
  // Errors (bad_input): it cannot listen there, and why.
  static Expected<std::unique_ptr<MetricsEndpoint>> create(const std::string& host, int port,
                                                           const RunLabels& labels);
  ~MetricsEndpoint() override;

  int port() const;

  void on_step(const StepReport& report) override;
  void on_validation(Epoch epoch, Step step, const Evaluation& evaluation) override;
  void on_checkpoint() override;
  void on_warning() override;

 private:
  struct Impl;
  explicit MetricsEndpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace grapevine
