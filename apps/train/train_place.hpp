// The place of this process in its job, and the transport between the processes.
#pragma once
#include <optional>

#include "apps/train/train_job.hpp"
#include "messages/expected.hpp"
#include "messages/time.hpp"

namespace grapevine {

inline constexpr std::int64_t kMaxWorkers = 4096;  // of all processes together
inline constexpr int kMaxThreads = 256;            // of each worker

// Reads the launcher's variables; sets job.launched, local_ranks, the number of all workers and of
// threads, and the transport's name. Errors (bad_input): variables, numbers or a transport that do
// not fit together.
Expected<void> find_place(TrainJob& job);

// After which a process that answers nothing while others wait counts as lost; none: only after the
// timeout, as asked for, or as the launcher ends the job with any of its processes. REQUIRES:
// find_place().
std::optional<Duration> silence_of_lost_process(const TrainJob& job);

// Makes job.run.transport, and job.run.cluster where there are several processes. REQUIRES:
// find_place(), make_folders(). Errors: no such interface, no socket.
Expected<void> make_transport(TrainJob& job);

}  // namespace grapevine
