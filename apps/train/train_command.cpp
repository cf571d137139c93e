#include "apps/train/train_command.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "actors/cluster/rendezvous.hpp"
#include "actors/record/files.hpp"
#include "actors/run/scheduling.hpp"
#include "actors/run/thread_headroom.hpp"
#include "actors/run/whole_epochs.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "apps/console/console.hpp"
#include "apps/console/json_text.hpp"
#include "apps/console/run_display.hpp"
#include "apps/console/signals.hpp"
#include "apps/control/control_server.hpp"
#include "apps/control/status_json.hpp"
#include "apps/launch/launch_plan.hpp"
#include "apps/monitoring/bounded_server.hpp"
#include "apps/monitoring/metrics_endpoint.hpp"
#include "apps/monitoring/tensorboard_log.hpp"
#include "apps/node/submit_job.hpp"
#include "apps/train/job_file.hpp"
#include "apps/train/join/train_join.hpp"
#include "apps/train/live/live_settings.hpp"
#include "apps/train/model_file.hpp"
#include "apps/train/resume/earlier_validations.hpp"
#include "apps/train/resume/saved_job.hpp"
#include "apps/train/run_end.hpp"
#include "apps/train/run_output.hpp"
#include "apps/train/run_tally.hpp"
#include "apps/train/summary.hpp"
#include "apps/train/train_folder.hpp"
#include "apps/train/train_job.hpp"
#include "apps/train/train_options.hpp"
#include "gpu/math_threads.hpp"
#include "messages/exit_code.hpp"
#include "messages/text/exception_line.hpp"
#include "messages/text/names.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tcp_dial.hpp"

namespace grapevine {
namespace {
constexpr std::int64_t kMostRestarts = 1'000'000;

constexpr Duration kPollInterval = std::chrono::milliseconds(100);
constexpr Duration kShutDownPatience = std::chrono::seconds(10);
// A run that has lost a process ends at once, without the steps that are under way, but with the
// checkpoint.
constexpr Duration kLostPatience = std::chrono::milliseconds(300);
constexpr Duration kWritingPatience = std::chrono::seconds(5);
// The transports have a flush_limit of 60 s.
constexpr Runtime::ClosePatience kClosePatience{std::chrono::seconds(20), std::chrono::seconds(70)};

// `patience`: of the run, with its steps.
Duration shut_down_patience(const RunResult& result, Duration patience) {
  if (!result.error) return kShutDownPatience;
  // A step has already taken longer than the user allows.
  if (result.error->code == Errc::timeout) return std::min(kShutDownPatience, patience);
  if (result.error->code != Errc::peer_down) return kShutDownPatience;
  return result.writing ? kWritingPatience : kLostPatience;
}

// The last message of process 0 in a run that was asked to stop.
Error stopped(const std::string& folder) {
  if (folder.empty())
    return {Errc::failed, "stopped by request, without a checkpoint to resume from"};
  return {Errc::stopped, "stopped by request; resume with --resume " + folder};
}

Timestamp steady_now() {
  return std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch());
}

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
    if (here && options_.job_file.empty()) {
      if (auto settled = settle_resume(options_); !settled) return settled;
      if (!options_.resume.empty()) options_.job_file = saved_job_file(options_.resume);
    }
    if (auto read = read_job_file(*app_, options_); !read) return read;
    return options_.cluster.empty() ? settle_resume(options_) : Expected<void>();
  }

  Expected<void> run_job(Console& console) {
    if (auto length = settle_length(*app_, options_); !length) return length;
    if (auto fits = check_momentum(*app_, options_); !fits) return fits;
    std::signal(SIGPIPE, SIG_IGN);  // the reader of the progress may go: the training stays
    if (!options_.cluster.empty()) return submit(console);
    if (options_.processes != 0)
      return bad_input("--processes goes with --cluster; here, 'grapevine launch -n N -- train'");
    for (const std::string name : {"--on-failure", "--restarts"})
      if (app_->get_option(name)->count() > 0 && !from_environment(*app_->get_option(name)))
        return bad_input(name + " goes with --cluster; here, 'grapevine launch " + name +
                         " … -n N -- train'");
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
      return job.is_head() ? lead(job, display, signals, console)
                           : take_part(job, signals, console);
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

  // For the process that reports the run.
  Expected<void> lead(TrainJob& job, RunDisplay& display, SignalFlags& signals,
                      Console& console) const {
    job.run.control = std::make_shared<ControlHub>();
    const bool in_place = continues_in_place(job);
    const auto earlier = in_place ? std::vector<EarlierOutput>() : earlier_outputs(job.out);
    const auto stale = in_place ? earlier_summary(job.out) : std::vector<EarlierOutput>();
    auto output = RunOutput::create(job.out + "/metrics.csv", output_before(job));
    if (!output) return bad_input(output.error().message);  // nothing has been trained yet
    auto late_job_file = leave_job_file(job);
    if (!late_job_file) return bad_input(late_job_file.error().message);
    if (auto followed = add_followers(job, **output, display); !followed) return followed;
    announce(job, display);
    if (job.run.cluster)
      job.run.cluster->job_text = clock_start_line(job.start) + job_file_text(*app_, job);
    // Before the first row and before the first checkpoint, whichever comes first.
    const auto clear = [once = std::make_shared<std::once_flag>(), earlier,
                        write_job = std::move(*late_job_file)] {
      std::call_once(*once, [&] {
        remove_outputs(earlier);
        write_job();
      });
    };
    (*output)->before_first_step([clear, stale] {
      clear();
      remove_outputs(stale);
    });
    job.run.before_first_checkpoint = clear;
    bool requeue = false;
    const bool output_in_use = job.run.output_in_use;
    const auto hub = job.run.control;
    const auto tally = make_tally(job, **output, display);
    const auto live = follow_changes(job, **output, display);
    job.run.job_file_with = [this, begun = as_it_begins(job)](const LiveSettings& settings) {
      ChangingJob changed = begun;
      changed.apply(settings);
      return changed.text(*app_);
    };
    auto control = listen_for_control(job, **output, display);
    if (!control) return control.error();
    RunResult result = train(job, *output, tally, signals, requeue, display, console);
    control->clear();
    live->put_into(job);
    RunEnding ending;
    ending.stop_requested = [&] {
      return requeue || signals.stop_requested() || hub->stop_requested();
    };
    ending.reported_steps = (*output)->reported_steps();
    ending.early = result.interrupted && tally->wants_stop() && !ending.stop_requested();
    if (ending.early) result.interrupted = false;  // as far as the user is concerned, it is done
    if (in_place && !tally->begun()) ending.before = summary_before(job, result);
    // A run without a step keeps the files of an earlier run.
    if (!tally->begun() && result.error && has_summary(job.out)) return *result.error;
    if (!tally->begun() && result.interrupted && output_in_use)
      return Error{Errc::failed,
                   "stopped by a signal before the first step: " + job.out + " stays as it was"};
    // The model matters more than the curve to it.
    auto reported = report(job, result, *tally, ending, display, console);
    if (const auto rows = (*output)->finished(); reported && !rows) return rows;
    if (!reported || !result.interrupted) return reported;
    const bool saved = has_checkpoint(job.out);
    if (saved && result.lacks_final && !requeue)
      return Error{Errc::failed,
                   "stopped by request, but the last checkpoint could not be written "
                   "(see above): --resume " +
                       job.out + " continues from an older one"};
    if (!requeue) return stopped(saved ? job.out : "");
    if (!saved)
      return Error{Errc::failed, "--requeue-command was not run: " + job.out +
                                     " holds no checkpoint to resume from"};
    // The command may start the next run, here, at once.
    output->reset();
    job.out_lock.reset();
    display.drain([] { return true; });
    if (auto queued = run_requeue_command(job); !queued) return queued;
    return stopped(job.out);
  }

  // Writes job.toml now in a new folder. In one with an earlier run's outputs, these stay until the
  // first step: what is returned writes it then.
  Expected<std::function<void()>> leave_job_file(const TrainJob& job) const {
    const std::string path = job.out + "/" + kJobFileName;
    std::string text = job_file_text(*app_, job);
    std::error_code ignored;
    if (job.run.output_in_use || std::filesystem::exists(path, ignored))
      return std::function<void()>([path, text = std::move(text)] {
        const auto written = write_file_atomically(path, text);
        if (!written) spdlog::warn("{}", written.error().message);
      });
    if (auto written = write_file_atomically(path, text); !written) return written.error();
    return std::function<void()>([] {});
  }

  // Those that this process starts once the run begins: where one cannot be, the run cannot end
  // either.
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
    if (auto started = check_thread_headroom(others, workers, each); !started) return started;
    const int evaluators = job.evaluator ? 1 : 0;
    // This thread has its own already, which others use once they need it.
    return check_product_memory((workers * devices + evaluators) * (1 + pool) - 1);
  }

  // Of a job that is resumed, process 0 alone knows the wiring.
  bool may_continue() const {
    if (!options_.resume.empty()) return true;
    const auto wiring = effective_wiring(options_);
    if (!wiring) return true;  // process 0 says what is wrong with it
    const auto plan = resolve(*wiring);
    return !plan || changes_members(*plan);
  }

  // Reads --on-failure, --restarts, --min-ranks and the number of places.
  Expected<void> read_failure_options(Submission& job) const {
    const std::string& typed = options_.on_failure;
    if (!typed.empty() && typed != "continue" && typed != "stop")
      return unknown_name("--on-failure", typed, {"continue", "stop"});
    if (options_.restarts < 0 || options_.restarts > kMostRestarts)
      return bad_input(
          fmt::format("--restarts {}: expected 0..{}", options_.restarts, kMostRestarts));
    if (typed == "stop" && app_->get_option("--restarts")->count() > 0)
      return bad_input("--restarts does not go with --on-failure stop: leave one of them out");
    job.continues = typed != "stop" && may_continue();
    job.restarts = static_cast<std::int32_t>(options_.restarts);
    const std::int64_t each = options_.workers == kWorkersAsUsual ? 1 : options_.workers;
    if (options_.min_ranks > 0 && each > 0)
      job.least = static_cast<std::int32_t>((options_.min_ranks + each - 1) / each);
    if (options_.max_ranks > 0 && each > 0 && options_.max_ranks % each == 0)
      job.places = static_cast<std::int32_t>(options_.max_ranks / each);
    return {};
  }

  // The job runs elsewhere: the options are checked here as far as possible.
  Expected<void> submit(Console& console) {
    if (auto checked = check_train_options(options_); !checked) return checked;
    if (options_.processes < 0)
      return bad_input("--processes " + std::to_string(options_.processes) +
                       ": expected 1 or more, or 0 for one in each slot");
    if (!options_.requeue_command.empty())
      return bad_input("--requeue-command does not go with --cluster: give the job again by hand");
    Submission job;
    if (auto read = read_failure_options(job); !read) return read;
    job.cluster = options_.cluster;
    job.secret_file = options_.secret_file;
    if (auto loaded = load_certificates(options_); !loaded) return loaded;
    job.tls = options_.certificates;
    job.arguments = travelling_arguments(*app_, options_);
    job.out = options_.out;
    // With only --resume process 0 decides: it knows the existing folders.
    if (job.out.empty() && options_.resume.empty()) job.out = dated_folder(options_.algorithm);
    if (!job.out.empty()) job.arguments.push_back("--out=" + job.out);
    job.processes = options_.processes;
    job.patience = from_seconds(options_.join_timeout_s);
    return submit_job(job, console);
  }

  // Of a process that only trains: the head reports the run. The same holds for a stop: this
  // process ends while the head still writes its files, and launchers kill a job of which one
  // process ends with another code than 0.
  static Expected<void> take_part(TrainJob& job, SignalFlags& signals, Console& console) {
    const auto end = std::make_shared<RunEnd>();
    const RunResult result =
        run_to_the_end(std::move(job.run), end, nullptr, signals, nullptr, console);
    if (result.error) return *result.error;
    return {};
  }

  // That are not in the rows of the run before.
  static std::vector<Step> first_steps(const TrainJob& job) {
    if (!job.run.resume) return {};
    std::vector<Step> steps = job.run.resume->reported();
    steps.resize(static_cast<std::size_t>(job.run.workers()));  // servers take none
    return steps;
  }

  static OutputBefore output_before(const TrainJob& job) {
    if (!job.run.resume) return {};
    return {first_steps(job), job.saved_steps, whole_epochs(job.run.resumed_most()),
            rows_before(job)};
  }

  // The outputs beside metrics.csv that grow during the run.
  static Expected<void> add_followers(const TrainJob& job, RunOutput& output, RunDisplay& display) {
    const TrainOptions& o = job.options;
    if (o.tensorboard) {
      auto log =
          TensorBoardLog::create(job.out + "/tensorboard", first_steps(job),
                                 [&output](const std::string& message) { output.warn(message); });
      if (!log) return log.error();
      output.add_follower(*std::move(log));
    }
    if (o.metrics_port.empty()) return {};
    const auto place = parse_metrics_place(o.metrics_port);
    if (!place) return place.error();
    if (!o.tls.empty() && !is_loopback_host(place->host))
      spdlog::warn("--metrics-port {}: its figures are not encrypted, also with --tls",
                   o.metrics_port);
    auto endpoint = MetricsEndpoint::create(
        *place, {o.algorithm, o.model, o.data, o.transport, GRAPEVINE_VERSION, o.workers,
                 job.run.ranks, status_source(job)});
    if (!endpoint) return endpoint.error();
    display.say_error("metrics: " + (*endpoint)->url() + "\n");
    output.add_follower(*std::move(endpoint));
    return {};
  }

  static RunDescription facts_of(const TrainJob& job) {
    const TrainOptions& o = job.options;
    return {o.algorithm,    o.model,           o.data,    o.transport, job.out,
            machine_name(), GRAPEVINE_VERSION, ::getpid()};
  }

  // For the page of the metrics port.
  static std::function<Expected<nlohmann::ordered_json>()> status_source(const TrainJob& job) {
    return [hub = job.run.control, facts = facts_of(job)]() -> Expected<nlohmann::ordered_json> {
      const auto status = hub->status();
      if (!status) return status.error();
      return status_json(*status, facts);
    };
  }

  // What changes while the job runs, and its job.toml with that.
  struct ChangingJob {
    TrainOptions options, resolved;
    Wiring wiring;
    JobOrigin origin;

    void apply(const LiveSettings& settings) {
      // The run has accepted them.
      for (TrainOptions* of : {&options, &resolved})
        if (!apply_settings(*of, settings)) return;
      if (auto changed = effective_wiring(options)) wiring = *std::move(changed);
    }
    std::string text(const CLI::App& app) const {
      return job_file_text(app, resolved, wiring, origin);
    }
  };
  struct LiveJob {
    std::mutex mutex;
    ChangingJob now;  // guarded by mutex

    void put_into(TrainJob& job) {
      const std::lock_guard<std::mutex> lock(mutex);
      job.options = now.options;
      job.wiring = now.wiring;
    }
  };

  static ChangingJob as_it_begins(const TrainJob& job) {
    ChangingJob begun{job.options, resolved_options(job), job.wiring, {}};
    if (job.launched) begun.origin.processes = job.launched->processes;
    begun.origin.resumed = job.run.resume.has_value();
    return begun;
  }

  // job.toml is that of the run as it is now; a run that is resumed has that of its checkpoint.
  std::shared_ptr<LiveJob> follow_changes(const TrainJob& job, RunOutput& output,
                                          RunDisplay& display) const {
    auto live = std::make_shared<LiveJob>();
    live->now = as_it_begins(job);
    output.when_changed([this, live, out = job.out, &display](const LiveSettings& settings) {
      const std::lock_guard<std::mutex> lock(live->mutex);
      live->now.apply(settings);
      for (const auto& [key, value] : settings)
        display.say_error("changed: " + key + " = " + value + "\n");
      const auto written = write_file_atomically(out + "/" + kJobFileName, live->now.text(*app_));
      if (!written) spdlog::warn("{}", written.error().message);
    });
    return live;
  }

  // Where others ask the run and change it. Errors (bad_input): not on the given port.
  using ControlServers = std::vector<std::unique_ptr<ControlServer>>;
  static Expected<ControlServers> listen_for_control(const TrainJob& job, RunOutput& output,
                                                     RunDisplay& display) {
    const TrainOptions& o = job.options;
    const auto& hub = job.run.control;
    const RunDescription facts = facts_of(job);
    ControlServers servers;
    // Some file systems have no sockets: that is no reason not to train.
    auto local = ControlServer::on_socket(job.out, hub, facts);
    if (local)
      servers.push_back(*std::move(local));
    else
      output.warn("'grapevine control' cannot reach this run: " + local.error().message);
    if (o.control.empty()) return ControlServers(std::move(servers));
    const auto place = parse_control_place(o.control, "--control");
    if (!place) return place.error();
    const char* secret = std::getenv(kJobTokenVariable);
    auto remote =
        ControlServer::on_port(*place, secret == nullptr ? "" : secret, hub, facts, o.certificates);
    if (!remote) return remote.error();
    display.say_error(
        "control: " +
        tcp::join_address(place->host, static_cast<std::uint16_t>((*remote)->port())) + "\n");
    servers.push_back(*std::move(remote));
    return ControlServers(std::move(servers));
  }

  // metrics.csv beside the checkpoint of a resumed run; empty for a new run.
  static std::string rows_before(const TrainJob& job) {
    if (!job.run.resume) return "";
    const std::filesystem::path checkpoint = job.run.resume->path;
    return (checkpoint.parent_path().parent_path() / "metrics.csv").string();
  }

  static void announce(const TrainJob& job, RunDisplay& display) {
    if (!job.continues.empty()) display.say_error(job.continues + "\n");
    const TrainOptions& o = job.options;
    const Step steps = job.run.parts->horizon.steps;
    display.say_error(o.algorithm + ": " + o.model + " (" + format_count(job.parameters) +
                      " parameters) on " + o.data + ", " + of_places(job) +
                      std::to_string(o.workers) + (o.workers == 1 ? " worker" : " workers") +
                      " x batch " + std::to_string(o.batch_size) +
                      (o.accumulate > 1 ? " x " + std::to_string(o.accumulate) : "") + ", " +
                      format_count(steps) + (steps == 1 ? " step" : " steps") +
                      (steps_plainly(*job.run.parts) ? ", without momentum" : "") + "\n");
    if (job.run.vacant().empty()) return;
    const std::size_t vacant = job.run.vacant().size();
    display.say_error(fmt::format("{} vacant: 'grapevine train --join {}' takes one{}\n",
                                  vacant == 1 ? "1 place is" : fmt::format("{} places are", vacant),
                                  head_of(*job.run.cluster),
                                  job.run.cluster->secret.empty()
                                      ? ""
                                      : std::string(", with the job's ") + kJobTokenVariable));
  }

  static std::string of_places(const TrainJob& job) {
    return job.run.vacant().empty() ? "" : std::to_string(job.run.beginning_workers()) + " of ";
  }

  // Whether the default of --momentum counts for nothing: it is refused where it is given.
  static bool steps_plainly(const SharedParts& parts) {
    return !parts.plan.role->uses_momentum(parts.plan) && parts.optimizer.momentum != 0;
  }

  static RunProgress progress_before(const TrainJob& job) {
    RunProgress progress;
    progress.steps = job.run.parts->horizon.steps * job.options.workers;
    for (const Step step : first_steps(job)) progress.step += step;
    const Horizon& horizon = job.run.parts->horizon;
    progress.epochs = horizon.epoch_of(horizon.steps);
    return progress;
  }

  static std::shared_ptr<RunTally> make_tally(const TrainJob& job, const RunOutput& output,
                                              RunDisplay& display) {
    auto tally = std::make_shared<RunTally>(
        progress_before(job), output.kept_losses(),
        [&display](const RunProgress& progress) { display.show(progress); }, job.options.workers);
    tally->stop_after(job.options.early_stop);
    if (job.run.resume)
      tally->begin_after(earlier_validations(rows_before(job), output_before(job).epochs));
    tally->tell_validations([&display](std::string line) { display.say_error(std::move(line)); });
    return tally;
  }

  // Runs to the end, or to an end that a signal asked for.
  static RunResult train(TrainJob& job, const std::shared_ptr<RunOutput>& output,
                         const std::shared_ptr<RunTally>& tally, SignalFlags& signals,
                         bool& requeue, RunDisplay& display, Console& console) {
    ProgressOptions progress;
    progress.label = job.options.algorithm;
    progress.now = steady_now;
    progress.style = console.terminal ? detect_terminal(STDERR_FILENO) : TerminalStyle{};
    progress.start = progress_before(job);
    progress.start.step /= job.options.workers;
    progress.start.steps /= job.options.workers;
    display.begin_progress(std::move(progress));
    const auto of_each = static_cast<std::int32_t>(job.local_ranks.size());  // process
    const std::int32_t others = job.launched ? job.run.beginning_workers() / of_each - 1 : 0;
    if (others > 0)
      tally->begin_phase("waiting for " + std::to_string(others) +
                         (others == 1 ? " other process" : " other processes"));
    const bool requeues = !job.options.requeue_command.empty();
    RunResult result = run_to_the_end(std::move(job.run), tally, output, signals,
                                      requeues ? &requeue : nullptr, console);
    display.end_progress(!result.error);
    return result;
  }

  // Passes signals on. SIGUSR1 asks for a checkpoint, or, where `requeue` is given, sets it and
  // stops.
  static RunResult run_to_the_end(RunConfig config, const std::shared_ptr<RunEnd>& end,
                                  const std::shared_ptr<RunReport>& files, SignalFlags& signals,
                                  bool* requeue, Console& console) {
    const auto stop_requested = [&signals, control = config.control] {
      return signals.stop_requested() || (control && control->stop_requested());
    };
    // Processes that still connect hear of the end of the start here: its first reason counts.
    if (config.cluster)
      config.cluster->cancelled = [stop_requested, end] {
        return stop_requested() || end->has_ended();
      };
    const Duration patience = config.patience;
    auto runtime = std::make_unique<Runtime>(std::move(config), end, files);
    bool stopping = false;
    for (;;) {
      if (auto result = end->wait_for(kPollInterval)) {
        if (!ends(*runtime, shut_down_patience(*result, patience))) {
          // The objects of a thread that does not return must stay.
          console.thread_left_behind = true;
          static_cast<void>(runtime.release());
        }
        return std::move(*result);
      }
      const bool asked = signals.take_checkpoint_request();
      if (asked && requeue != nullptr) *requeue = true;
      const bool stop = stop_requested() || (asked && requeue != nullptr) || end->wants_stop();
      if (stop && !stopping) {
        stopping = true;
        runtime->request_stop();
      } else if (asked && requeue == nullptr) {
        runtime->request_checkpoint();
      }
    }
  }

  // False: a thread does not return.
  static bool ends(Runtime& runtime, Duration patience) {
    if (!runtime.shut_down(patience)) return false;
    const Expected<void> closed = runtime.close(kClosePatience);
    if (!closed) spdlog::warn("{}: this process ends without it", closed.error().message);
    return closed.ok();
  }

  // The checkpoint is on disk: the next run continues from it.
  static Expected<void> run_requeue_command(const TrainJob& job) {
    const std::string& command = job.options.requeue_command;
    ::setenv("GRAPEVINE_REQUEUE_FOLDER", job.out.c_str(), 1);
    // Which commands expect; here they stay ignored.
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

  // How a run has ended, beside its result.
  struct RunEnding {
    bool early = false;  // --early-stop has ended it
    // By a signal, or by another program. Also later.
    std::function<bool()> stop_requested;
    nlohmann::ordered_json before;  // the summary that stays, of a run that was at its end; or null
    Step reported_steps = 0;        // at a stop, more than those of the checkpoint
  };

  // The figures of the last model; without any where the run is asked to stop: those who ask, wait,
  // and `evaluate` has them later.
  static Expected<std::optional<Evaluation>> test_model(const TrainJob& job,
                                                        const RunResult& result,
                                                        const RunEnding& ending) {
    if (result.interrupted || ending.stop_requested()) return std::optional<Evaluation>();
    job.evaluator->on_evaluation_progress([&ending] { return !ending.stop_requested(); });
    auto evaluated = job.evaluator->evaluate(result.z, result.buffers);
    job.evaluator->on_evaluation_progress({});
    if (evaluated) return std::optional<Evaluation>(*evaluated);
    const bool none = ending.stop_requested() || job.data->info().test_size == 0;
    if (none) return std::optional<Evaluation>();
    return evaluated.error();
  }

  // Of a run that was at its end already, and whose figures of speed would be lost; null for
  // others.
  static nlohmann::ordered_json summary_before(const TrainJob& job, const RunResult& result) {
    if (result.error || result.interrupted || result.steps.empty() || !has_finished(job.out))
      return nullptr;
    std::ifstream file(job.out + "/summary.json");
    auto summary = nlohmann::ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
    const Step steps = *std::max_element(result.steps.begin(), result.steps.end());
    const auto has = [&summary](const char* name, const nlohmann::ordered_json& value) {
      return summary.contains(name) && summary[name] == value;
    };
    const bool tested = job.data->info().test_size == 0 || !has("test_loss", nullptr);
    // One of another version may lack figures.
    const bool same = has("versions", version_facts()) && has("steps", steps);
    return tested && same && has("interrupted", false) ? summary : nullptr;
  }

  Expected<void> report(const TrainJob& job, const RunResult& result, const RunTally& tally,
                        const RunEnding& ending, RunDisplay& display, Console& console) const {
    const RecentLosses& losses = tally.losses();
    std::optional<Evaluation> test;
    Error evaluation_error;
    // An abandoned thread may still evaluate.
    const bool evaluates = !result.error && !console.thread_left_behind && ending.before.is_null();
    Expected<void> saved;
    if (result.z.defined()) saved = save_model(job, result);
    if (result.z.defined() && evaluates) {
      auto tested = test_model(job, result, ending);
      if (tested)
        test = *tested;
      else
        evaluation_error = tested.error();
    }
    const auto vacant = static_cast<std::int64_t>(result.vacant.size());
    const double goodput = tally.goodput().ratio(result.ledger, job.options.workers - vacant);
    auto summary = make_summary(job, result, losses.mean(), goodput, test);
    add_origin(*app_, job, date_, summary);
    if (ending.early) summary["early_stopped"] = true;
    if (ending.reported_steps > 0) summary["reported_steps"] = ending.reported_steps;
    const std::optional<Error> broken = not_finite(result, losses, test, job.out);
    if (!result.error)
      for (const Error& problem :
           {saved ? Error{} : saved.error(), evaluation_error, broken.value_or(Error{})})
        if (!problem.message.empty() && !summary.contains("error"))
          summary["error"] = problem.message;
    if (saved && !ending.before.is_null()) summary = ending.before;
    const std::string text = json_text(summary, 2) + "\n";
    const auto written = write_file_atomically(job.out + "/summary.json", text);
    if (!saved) return saved;
    if (!written) return written;
    if (result.error) return *result.error;
    if (!evaluation_error.message.empty()) return evaluation_error;
    if (broken) return *broken;
    print(job, result, summary, display);
    return {};
  }

  // A regression has no accuracy, but a loss on the test data.
  static bool shows_loss(const nlohmann::ordered_json& summary) {
    return summary.at("test_accuracy").is_null() && !summary.at("test_loss").is_null();
  }

  static void print(const TrainJob& job, const RunResult& result,
                    const nlohmann::ordered_json& summary, RunDisplay& display) {
    if (job.options.json) {
      display.say_result(json_text(summary, -1) + "\n");
      return;
    }
    const auto shown = [](const nlohmann::ordered_json& figure, int decimals) {
      return figure.is_null() ? std::string("-") : format_number(figure.get<double>(), decimals);
    };
    const bool loss = shows_loss(summary);
    Table table({"time", "samples/s", "loss", loss ? "test loss" : "test accuracy", "sent",
                 "staleness", "consensus"});
    table.add_row({format_duration(from_seconds(result.seconds)),
                   format_rate(summary.at("samples_per_second").is_null()
                                   ? std::nan("")
                                   : summary.at("samples_per_second").get<double>()),
                   shown(summary.at("final_loss"), 4),
                   shown(summary.at(loss ? "test_loss" : "test_accuracy"), 4),
                   format_bytes(result.ledger.bytes_sent),
                   shown(summary.at("staleness").at("mean"), 2),
                   shown(summary.at("consensus_distance"), 4)});
    std::string text = table.to_string();
    std::error_code ignored;
    const std::string best = job.out + "/checkpoint/best";
    if (summary.contains("early_stopped"))
      text += "stopped early: " + std::to_string(job.options.early_stop) +
              " validations without a better one" +
              (std::filesystem::exists(best, ignored) ? "; the best one: " + best : "") + "\n";
    text += "outputs in " + job.out + ": summary.json metrics.csv model.pt job.toml checkpoint/" +
            (job.options.trace == "on" ? " trace/" : "") +
            (job.options.tensorboard ? " tensorboard/" : "") + "\n";
    display.say_result(std::move(text));
  }

  CLI::App* app_ = nullptr;
  TrainOptions options_;
  const std::string date_ = summary_date();  // of the beginning
};

}  // namespace

std::unique_ptr<Command> make_train_command() { return std::make_unique<TrainCommand>(); }

}  // namespace grapevine
