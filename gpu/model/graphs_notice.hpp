// GraphsNotice: why --cuda-graphs has no effect, once for all workers of a process.
#pragma once
#include <atomic>
#include <string>

namespace grapevine {

// The reasons are those of all workers of a run, or nearly: the same model, data and precision. So
// the first one that a worker finds is a warning, without the worker, where `warns`; all others are
// lines of level info, with it. Thread-safe.
class GraphsNotice {
 public:
  // `warns`: for one process of a run.
  explicit GraphsNotice(bool warns) : warns_(warns) {}

  // `name`: of the worker. `why`: a clause.
  void report(const std::string& name, const std::string& why);

 private:
  std::atomic<bool> warns_;
};

}  // namespace grapevine
