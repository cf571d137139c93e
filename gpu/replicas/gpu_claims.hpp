// Which GPUs the processes of a machine use, so that a process knows whether its GPUs are
// exclusive.
#pragma once
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "messages/time.hpp"

namespace grapevine {

// The first GPU of `own` that others use as well: that `all`, which has those of `own` in it, names
// more often; empty: there is none. Ids are those of device_ids(): the CPU's are empty and do not
// count. Pure.
std::string shared_gpu(const std::vector<std::string>& own, const std::vector<std::string>& all);

// The GPUs of a process, visible to others of the machine as long as it lives: a file that it holds
// locked, in a folder of the user. Numbers are not enough: a scheduler shows each process GPUs of
// its own under the numbers 0, 1, …, or all of them to all.
class GpuClaims {
 public:
  // `folder` is made where it is not there; it must be the user's own. `run` names the run: the
  // same text in all its processes, and in no other at the time; `process`: the number of this one
  // among those of the machine. Errors: io.
  static Expected<GpuClaims> post(const std::string& folder, const std::string& run, int process,
                                  const std::vector<std::string>& ids);
  GpuClaims(GpuClaims&& other) noexcept;
  GpuClaims& operator=(GpuClaims&&) = delete;
  ~GpuClaims();  // withdraws them

  // The ids that live processes of the user claim, of any run and this one included, once
  // `processes` different ones of this run do. Errors: timeout after `timeout`; io.
  Expected<std::vector<std::string>> gather(int processes, Duration timeout) const;

 private:
  GpuClaims(std::string folder, std::string run)
      : folder_(std::move(folder)), run_(std::move(run)) {}

  std::string folder_, run_;
  std::string path_;  // empty: nothing is posted
  int file_ = -1;     // locked
};

// The folder of this user, in /dev/shm or, where that cannot be written to, in /tmp: the same for
// all processes of the machine. TMPDIR does not count, as schedulers give each task its own.
std::string gpu_claims_folder();

}  // namespace grapevine
