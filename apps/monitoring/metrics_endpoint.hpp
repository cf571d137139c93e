// MetricsEndpoint: a run's figures over HTTP for Prometheus, `train --metrics-port P`.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "apps/monitoring/run_follower.hpp"
#include "messages/expected.hpp"
#include "net/addresses.hpp"

namespace grapevine {

// The labels of grapevine_run_info, and the source of the page.
struct RunLabels {
  std::string algorithm, model, data, transport, version;
  std::int64_t workers = 0;
  std::int64_t ranks = 0;  // servers included; at least workers
  std::function<Expected<nlohmann::ordered_json>()> status = nullptr;  // of the run; null: no page
};

// Figures of pairs of ranks have a series for each pair up to this number of ranks, servers
// included; above that one for each rank, whose other label is "all".
inline constexpr std::int64_t kMostRanksWithPairs = 64;

// Answers GET /metrics in Prometheus' text format, GET / with a page for people and GET
// /status.json with what that shows, in threads of its own, as long as it lives. It changes
// nothing: a client that can reach the port may read the figures. A request has 16 KiB and two
// seconds, ten with its answer, and 128 of them may wait; further ones are cut off. One that names
// another host than OwnHosts is refused. No body is read.
class MetricsEndpoint final : public RunFollower {
 public:
  // Errors (bad_input): it cannot listen there, and why.
  static Expected<std::unique_ptr<MetricsEndpoint>> create(const ListenAddress& address,
                                                           const RunLabels& labels);
  ~MetricsEndpoint() override;

  std::uint16_t port() const;
  // For people, e.g. "http://127.0.0.1:9400/metrics".
  std::string url() const;

  void on_step(const StepReport& report) override;
  void on_figures(const RankFigures& figures) override;
  void on_rank_lost(Rank rank) override;
  void on_rank_returned(Rank rank) override;
  void on_changed(const LiveSettings& changed) override;
  void on_validation(Epoch epoch, Step step, const Evaluation& evaluation) override;
  void on_checkpoint() override;
  void on_warning() override;

 private:
  struct Impl;
  explicit MetricsEndpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace grapevine
