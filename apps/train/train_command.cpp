#include "apps/train/train_command.hpp"

#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "actors/run/scheduling.hpp"
#include "actors/run/thread_headroom.hpp"
#include "apps/console/run_display.hpp"
#include "apps/console/signals.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/monitoring/bounded_server.hpp"
#include "apps/train/end/run_to_the_end.hpp"
#include "apps/train/join/join_display.hpp"
#include "apps/train/join/train_join.hpp"
#include "apps/train/lead/head_run.hpp"
#include "apps/train/lead/submission.hpp"
#include "apps/train/options/option_traits.hpp"
#include "apps/train/options/two_algorithms.hpp"
#include "apps/train/replicas/link_replicas.hpp"
#include "apps/train/replicas/worker_members.hpp"
#include "apps/train/resume/saved_job.hpp"
#include "apps/train/summary.hpp"
#include "apps/train/train_job.hpp"
#include "apps/train/train_options.hpp"
#include "apps/train/train_resume.hpp"
#include "gpu/threads/math_threads.hpp"
#include "messages/exit_code.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

class TrainCommand : public Command {
 public:
  void declare(CLI::App& app) override {
    app_ = &app;
    declare_train_options(app, options_);
  }

  Expected<void> run(Console& console) override {
    if (!options_.join.empty())
      if (auto found = find_job_to_join(*app_, options_); !found) return found;
    if (auto read = read_jobs(); !read) return read;
    name_own_wiring(*app_, options_);
    auto done = run_job(console);
    if (!done && done.error().code == Errc::bad_input)
      return located(done.error(), options_.places);
    return done;
  }

 private:
  // The job file, or that of the run which this one continues. The nodes of a cluster have that
  // one.
  Expected<void> read_jobs() {
    const bool here = options_.cluster.empty();
    const bool own_file = !options_.job_file.empty();
    if (here && !own_file) {
      const bool again = is_repeated();
      if (auto settled = settle_resume(options_); !settled) return settled;
      if (auto found = take_saved_job(again); !found) return found;
    }
    if (auto read = read_job_file(*app_, options_); !read) return read;
    if (!options_.cluster.empty()) return {};
    const bool again = own_file && is_repeated();
    if (auto settled = settle_resume(options_); !settled) return settled;
    return again ? keep_algorithm_of_state() : Expected<void>();
  }

  // A launcher that restarts a command resumes by GRAPEVINE_RESUME.
  bool is_repeated() const {
    return options_.resume == "auto" || from_environment(*app_->get_option("--resume"));
  }

  Expected<void> keep_algorithm_of_state() {
    if (options_.resume.empty()) return {};
    const auto saved = find_saved_job(options_.resume);
    if (!saved || !*saved) return {};  // then the job file of the command is all there is
    return keep_algorithm(*app_, options_, (*saved)->text, (*saved)->path);
  }

  Expected<void> take_saved_job(bool restarts) {
    if (options_.resume.empty()) return {};
    auto saved = find_saved_job(options_.resume);
    if (!saved) return saved.error();
    if (*saved) {
      options_.job_file = (*saved)->path;
      options_.job_text = std::move((*saved)->text);
    }
    options_.of_state = restarts ? StateJob::counts : StateJob::refuses;
    return {};
  }

  Expected<void> run_job(Console& console) {
    if (auto length = settle_length(*app_, options_); !length) return length;
    if (auto fits = check_momentum(*app_, options_); !fits) return fits;
    std::signal(SIGPIPE, SIG_IGN);  // the reader of the progress may go: the training stays
    if (!options_.cluster.empty()) return submit_train_job(*app_, options_, console);
    if (options_.processes != 0)
      return bad_input("--processes goes with --cluster; here, 'grapevine launch -n N -- train'");
    for (const std::string& option : options_with(OptionTraits::needs_cluster)) {
      const std::string name = "--" + option;
      if (app_->get_option(name)->count() > 0 && !from_environment(*app_->get_option(name)))
        return bad_input(name + " goes with --cluster; here, 'grapevine launch " + name +
                         " … -n N -- train'");
    }
    SignalFlags signals;
    RunDisplay display(console);
    const Expected<void> done = run_here(display, signals, console);
    display.drain([&signals] { return signals.stop_requested(); });
    return done;
  }

  // In this process; an exception becomes an error.
  Expected<void> run_here(RunDisplay& display, SignalFlags& signals, Console& console) {
    try {
      auto made = prepare();
      if (!made) return made.error();
      TrainJob job = std::move(*made);
      if (signals.stop_requested()) return Error{Errc::failed, kStoppedBeforeTraining};
      if (auto threads = check_threads(job); !threads) return threads;
      if (job.processes.is_member())
        return serve_lead_of(job, [&signals] { return signals.stop_requested(); });
      const Expected<void> done = job.is_head()
                                      ? lead_run(job, *app_, date_, display, signals, console)
                                      : take_part(job, signals, console);
      if (job.members) job.members->dismiss();
      return done;
    } catch (...) {
      return Error{Errc::failed, exception_line(std::current_exception())};
    }
  }

  // Reads and makes data, which takes as long as it takes.
  Expected<TrainJob> prepare() {
    static const std::string line = std::string("error: ") + kStoppedBeforeTraining + "\n";
    const StopsAtOnce stops(line.c_str(), kExitFailed);
    return make_train_job(options_);
  }

  // Checks that the system has room for every thread that the run will start. Without it the run
  // would wait for ever for an actor that has no thread.
  static Expected<void> check_threads(const TrainJob& job) {
    constexpr int kAside = 8;   // clock, reporter, tracer, checkpoints, evaluation, end
    constexpr int kRemote = 8;  // event loops of the control plane and a transport
    const auto schedulers = static_cast<int>(scheduler_threads());
    const auto devices = static_cast<int>(job.options.devices_per_worker);
    const int pool = job.run.threads - 1;  // of each thread that computes
    const TrainOptions& o = job.options;
    const int servers = 1 + (o.control.empty() ? 0 : 1) + (o.metrics_port.empty() ? 0 : 1);
    const int serving = job.is_head() ? servers * (1 + BoundedServer::kThreads) : 0;
    const int others = schedulers + kAside + serving + (job.launched ? kRemote : 0) + 2 * pool;
    const int staged = job.launched && !job.run.peer_devices.empty() ? 2 : 0;
    const int each = staged + (devices == 1 ? 1 + pool : 1 + devices * (1 + pool));
    const auto workers = static_cast<int>(job.local_ranks.size());
    const int members = job.members ? job.processes.replicas : 0;  // a thread waits for each
    if (auto started = check_thread_headroom(others + members, workers, each); !started)
      return started;
    const int evaluators = job.evaluator ? 1 : 0;
    // This thread has its own already, which others use once they need it.
    return check_product_memory((workers * devices + evaluators) * (1 + pool) - 1);
  }

  // Of a process that only trains: the head reports the run. The same holds for a stop: this
  // process ends while the head still writes its files, and launchers kill a job of which one
  // process ends with another code than 0.
  static Expected<void> take_part(TrainJob& job, SignalFlags& signals, Console& console) {
    const auto end = std::make_shared<JoinDisplay>(console.err);
    const RunResult result =
        run_to_the_end(std::move(job.run), end, nullptr, signals, nullptr, console);
    if (result.error) return *result.error;
    return {};
  }

  CLI::App* app_ = nullptr;
  TrainOptions options_;
  const std::string date_ = summary_date();  // of the beginning
};

}  // namespace

std::unique_ptr<Command> make_train_command() { return std::make_unique<TrainCommand>(); }

}  // namespace grapevine
