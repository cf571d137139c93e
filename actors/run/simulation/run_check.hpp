// RunCheck: a promise of a run, watched in virtual time at every event.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/run/runtime.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/trace/trace_record.hpp"
#include "net/sim/sim_transport.hpp"

namespace grapevine {

// What a check may know of the run in advance.
struct CheckedRun {
  std::int32_t workers = 1;
  std::int32_t vacant = 0;  // of their places, the last ones, at the start
  std::int32_t servers = 0;
  Step steps = 0;                    // planned, of each worker
  bool plans_each_rank = true;       // see RoleType
  bool gives_weight = false;         // shares of push-sum travel, and each counts once
  std::int64_t most_staleness = -1;  // of an applied update; -1: not bounded
  bool ranks_agree = false;          // all workers end with the same model, bit for bit
  bool gives_sums = false;           // shares carry running sums of weight, and may be lost
  // Of nodes, or of the groups of levels, from the inside out: how many ranks are in one. Their
  // exchanges number their operations each by themselves.
  std::vector<std::int32_t> group_sizes;
  bool compares_operations = true;  // by their numbers; not where the wiring changes

  // How gradients enter the models, where that is plain arithmetic: x <- x - rate g.
  GradientSums gradient_sums = GradientSums::unknown;
  // Ranks send entries of their gradients as they are, and keep the others for later messages.
  bool feeds_back = false;
  double rate = 0;

  // Of what the checks draw at random.
  std::uint64_t seed = 0;
  // The most entries of vectors that a check follows one by one, those of all ranks together.
  std::int64_t most_entries = std::int64_t{1} << 20;  // 8 MiB

  std::int32_t ranks() const { return workers + servers; }
};

// Events come in the order of virtual time; the records of a rank in its order, some time after
// they happened, and all before on_end(). Not thread-safe.
class RunCheck : public NetworkWatch {
 public:
  RunCheck(std::string name, CheckedRun run) : name_(std::move(name)), run_(run) {}

  // The parameters of all models at the start, [d].
  virtual void on_begin(const FrozenTensor& /*parameters*/) {}
  // A worker has computed the gradient of this step. It is dropped where its rank dies first.
  virtual void on_gradient(Rank /*rank*/, Step /*step*/, const FrozenTensor& /*value*/) {}
  virtual void on_record(const TraceRecord&) {}
  virtual void on_end(const RunResult&) {}

  const std::string& name() const { return name_; }
  // The first few, one line each; empty: the promise was kept.
  const std::vector<std::string>& violations() const { return violations_; }
  std::uint64_t violation_count() const { return count_; }

 protected:
  void report(std::string what);
  const CheckedRun& run() const { return run_; }
  // Whether the rank takes no part at the end: it is lost, or its place vacant.
  static bool is_missing(const RunResult& result, std::size_t rank);

 private:
  static constexpr std::size_t kMostKept = 8;
  const std::string name_;
  const CheckedRun run_;
  std::vector<std::string> violations_;
  std::uint64_t count_ = 0;
};

// Each gradient is applied once or dropped once, after it was produced, and the totals agree with
// the ledger: produced = applied + pending + dropped, with destroyed among the pending ones.
std::unique_ptr<RunCheck> make_ledger_check(const CheckedRun& run);
// No rank gives away more push-sum weight than it has, and at the end the weights of the members
// sum to their number.
std::unique_ptr<RunCheck> make_mass_check(const CheckedRun& run);
// No applied update is older than the wiring allows.
std::unique_ptr<RunCheck> make_staleness_check(const CheckedRun& run);
// Each server counts its commits one by one, no message claims another version, and the staleness
// of a commit is the number of commits of other clients since the version of its stamp.
std::unique_ptr<RunCheck> make_version_check(const CheckedRun& run);
// The models have moved by exactly what was applied: x = x_0 - rate sum of g, along one direction
// that is drawn at random, in double precision.
std::unique_ptr<RunCheck> make_sum_check(const CheckedRun& run);
// The run ends, without an error, and its remaining workers have taken their steps.
std::unique_ptr<RunCheck> make_liveness_check(const CheckedRun& run);
// A sparse message has the sum of its rank's gradients since each of its entries was sent last.
// Of models with more than most_entries / workers entries, a sample of them is followed, another
// one at each rank, and no fewer than 32.
std::unique_ptr<RunCheck> make_feedback_check(const CheckedRun& run);
// A dead rank receives, sends and records nothing; per pair, messages arrive in the order of
// sending, and the peer sees each once.
std::unique_ptr<RunCheck> make_delivery_check(const CheckedRun& run);
// All remaining ranks lose the same others, each once; an operation that is complete at several
// ranks has the same members everywhere; replicas are equal at the end.
std::unique_ptr<RunCheck> make_agreement_check(const CheckedRun& run);

// All of them. Set as the watch of the network and of the trace.
class RunChecks : public NetworkWatch {
 public:
  explicit RunChecks(const CheckedRun& run);
  explicit RunChecks(std::vector<std::unique_ptr<RunCheck>> checks) : checks_(std::move(checks)) {}

  void on_sent(Timestamp at, const Envelope& message, std::uint64_t bytes) override;
  void on_delivered(Timestamp at, const Envelope& message) override;
  void on_lost(Timestamp at, const Envelope& message) override;
  void on_detached(Timestamp at, Rank rank) override;
  void on_returned(Timestamp at, Rank rank) override;
  void on_joined(Timestamp at, Rank rank) override;
  void on_begin(const FrozenTensor& parameters);
  void on_gradient(Rank rank, Step step, const FrozenTensor& value);
  void on_records(const std::vector<TraceRecord>& records);
  void on_end(const RunResult& result);

  // "ledger: rank 2 applied its gradient of step 7 twice".
  std::vector<std::string> violations() const;

 private:
  std::vector<std::unique_ptr<RunCheck>> checks_;
};

}  // namespace grapevine
