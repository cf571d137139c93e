#include "apps/train/end/requested_stop.hpp"

#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "apps/train/train_folder.hpp"

namespace grapevine {
namespace {

// The last message of process 0 in a run that was asked to stop.
Error stopped(const std::string& folder) {
  if (folder.empty())
    return {Errc::failed, "stopped by request, without a checkpoint to resume from"};
  return {Errc::stopped, "stopped by request; resume with --resume " + folder};
}

// The checkpoint is on disk: the next run continues from it.
Expected<void> run_requeue_command(const TrainJob& job) {
  const std::string& command = job.options.requeue_command;
  ::setenv("GRAPEVINE_REQUEUE_FOLDER", job.out.c_str(), 1);
  // Commands expect the default handlers; this process continues to ignore both signals.
  auto* const broken_pipe = std::signal(SIGPIPE, SIG_DFL);
  auto* const large_file = std::signal(SIGXFSZ, SIG_DFL);
  const int status = std::system(command.c_str());  // NOLINT: the user's own command
  std::signal(SIGPIPE, broken_pipe);
  std::signal(SIGXFSZ, large_file);
  if (status == 0) return {};
  const std::string code = WIFEXITED(status) ? "exit code " + std::to_string(WEXITSTATUS(status))
                                             : "status " + std::to_string(status);
  return Error{Errc::failed, "--requeue-command '" + command + "' failed with " + code +
                                 ": continue by hand with --resume " + job.out};
}

}  // namespace

Error end_of_stopped_run(const TrainJob& job, bool lacks_final, bool requeue,
                         const std::function<void()>& release) {
  const bool saved = has_checkpoint(job.out);
  if (saved && lacks_final && !requeue)
    return {Errc::failed,
            "stopped by request, but the last checkpoint could not be written (see above): "
            "--resume " +
                job.out + " continues from an older one"};
  if (!requeue) return stopped(saved ? job.out : "");
  if (!saved)
    return {Errc::failed,
            "--requeue-command was not run: " + job.out + " holds no checkpoint to resume from"};
  release();
  if (auto queued = run_requeue_command(job); !queued) return queued.error();
  return stopped(job.out);
}

}  // namespace grapevine
