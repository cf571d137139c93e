#include "apps/train/train_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "actors/cluster/process_supervision.hpp"
#include "actors/cluster/rendezvous.hpp"
#include "actors/record/files.hpp"
#include "actors/run/scheduling.hpp"
#include "actors/run/thread_headroom.hpp"
#include "actors/run/whole_epochs.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "apps/console/run_display.hpp"
#include "apps/console/signals.hpp"
#include "apps/console/text/figures.hpp"
#include "apps/console/text/progress_bar.hpp"
#include "apps/console/text/terminal.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/control/control_server.hpp"
#include "apps/control/status_json.hpp"
#include "apps/launched/launcher_environment.hpp"
#include "apps/monitoring/bounded_server.hpp"
#include "apps/monitoring/metrics_endpoint.hpp"
#include "apps/monitoring/tensorboard_log.hpp"
#include "apps/node/submit_job.hpp"
#include "apps/train/end/final_report.hpp"
#include "apps/train/end/requested_stop.hpp"
#include "apps/train/job_file.hpp"
#include "apps/train/join/join_display.hpp"
#include "apps/train/join/train_join.hpp"
#include "apps/train/live/live_job.hpp"
#include "apps/train/options/option_traits.hpp"
#include "apps/train/options/two_algorithms.hpp"
#include "apps/train/resume/earlier_validations.hpp"
#include "apps/train/resume/saved_job.hpp"
#include "apps/train/run_end.hpp"
#include "apps/train/run_output.hpp"
#include "apps/train/run_tally.hpp"
#include "apps/train/summary.hpp"
#include "apps/train/train_folder.hpp"
#include "apps/train/train_job.hpp"
#include "apps/train/train_options.hpp"
#include "apps/train/train_resume.hpp"
#include "gpu/math_threads.hpp"
#include "messages/exit_code.hpp"
#include "messages/text/exception_line.hpp"
#include "messages/text/names.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {
constexpr std::int64_t kMostRestarts = 1'000'000;

constexpr Duration kPollInterval = std::chrono::milliseconds(100);
constexpr Duration kShutDownTimeout = std::chrono::seconds(10);
// A run that has lost a process ends at once, without the steps that are under way, but with the
// checkpoint.
constexpr Duration kLostTimeout = std::chrono::milliseconds(300);
constexpr Duration kWritingTimeout = std::chrono::seconds(5);
// The transports have a flush_limit of 60 s.
constexpr Runtime::CloseTimeouts kCloseTimeouts{std::chrono::seconds(20), std::chrono::seconds(70)};

// `timeout`: of the run, with its steps.
Duration shut_down_timeout(const RunResult& result, Duration timeout) {
  if (!result.error) return kShutDownTimeout;
  // A step has already taken longer than the user allows.
  if (result.error->code == Errc::timeout) return std::min(kShutDownTimeout, timeout);
  if (result.error->code != Errc::peer_down) return kShutDownTimeout;
  return result.writing ? kWritingTimeout : kLostTimeout;
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
    const bool own_file = !options_.job_file.empty();
    if (here && !own_file) {
      const bool again = is_repeated();
      if (auto settled = settle_resume(options_); !settled) return settled;
      if (auto found = find_saved_job(again); !found) return found;
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
    const auto file = saved_job_file(options_.resume);
    if (!file || file->empty()) return {};  // then the job file of the command is all there is
    const auto text = read_toml_file(*file, "a TOML job file");
    if (!text) return text.error();
    return keep_algorithm(*app_, options_, *text, *file);
  }

  Expected<void> find_saved_job(bool restarts) {
    if (options_.resume.empty()) return {};
    auto file = saved_job_file(options_.resume);
    if (!file) return file.error();
    options_.job_file = *std::move(file);
    options_.of_state = restarts ? StateJob::counts : StateJob::refuses;
    return {};
  }

  Expected<void> run_job(Console& console) {
    if (auto length = settle_length(*app_, options_); !length) return length;
    if (auto fits = check_momentum(*app_, options_); !fits) return fits;
    std::signal(SIGPIPE, SIG_IGN);  // the reader of the progress may go: the training stays
    if (!options_.cluster.empty()) return submit(console);
    if (options_.processes != 0)
      return bad_input("--processes goes with --cluster; here, 'grapevine launch -n N -- train'");
    for (const std::string& option : options_with(OptionTraits::kNeedsCluster)) {
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
    const auto live = follow_changes(*app_, job, **output, display);
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
    ending.date = date_;
    ending.thread_left_behind = console.thread_left_behind;
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
    const Expected<void> reported = report_end(*app_, job, result, *tally, ending, display);
    // An incomplete metrics.csv is an error, but only after the model is saved.
    const auto rows = (*output)->finished();
    if (!reported) return reported;
    if (!rows) return rows;
    if (!result.interrupted) return {};
    return end_of_stopped_run(job, result.lacks_final, requeue, [&] {
      output->reset();
      job.out_lock.reset();
      display.drain([] { return true; });
    });
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
    if (auto checked = check_range("--restarts", options_.restarts, 0, kMostRestarts); !checked)
      return checked;
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
    if (auto checked = check_least("--processes", options_.processes, 0, ", 0: one in each slot");
        !checked)
      return checked;
    if (!options_.requeue_command.empty())
      return bad_input("--requeue-command does not go with --cluster: give the job again by hand");
    Submission job;
    if (auto read = read_failure_options(job); !read) return read;
    if (!options_.notice.empty()) console.err << options_.notice << std::endl;
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
    job.timeout = from_seconds(options_.join_timeout_s);
    return submit_job(job, console);
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

  // The step from which the rows of each rank are new; empty: not a resumed run.
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
    const auto place = parse_named_address("--metrics-port", o.metrics_port);
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
    const auto place = parse_listen_address("--control", o.control);
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
    if (!o.notice.empty()) display.say_error(o.notice + "\n");
    const Step steps = last_step(job);
    display.say_error(o.algorithm + ": " + o.model + " (" + format_count(job.parameters) +
                      " parameters) on " + o.data + ", " + of_places(job) +
                      std::to_string(o.workers) + (o.workers == 1 ? " worker" : " workers") +
                      " x batch " + std::to_string(o.batch_size) +
                      (o.accumulate > 1 ? " x " + std::to_string(o.accumulate) : "") + ", " +
                      format_count(steps) + (steps == 1 ? " step" : " steps") +
                      (steps_plainly(*job.run.parts) ? ", without momentum" : "") + "\n");
    if (job.run.vacant().empty()) return;
    const std::size_t vacant = job.run.vacant().size();
    display.say_error(fmt::format("{} vacant: {}\n",
                                  vacant == 1 ? "1 place is" : fmt::format("{} places are", vacant),
                                  takers_of(vacant, *job.run.cluster)));
  }

  // No process knows the secret of a job of nodes but those that the nodes start.
  static std::string takers_of(std::size_t places, const ClusterConfig& cluster) {
    if (const char* const pool = std::getenv(kPoolVariable); pool != nullptr)
      return fmt::format("a node that joins the pool, 'grapevine node --join {}', takes {}", pool,
                         places == 1 ? "it" : "them");
    const std::string token = std::string(", with the job's ") + kJobTokenVariable;
    return fmt::format("'grapevine train --join {}' takes one{}", head_of(cluster),
                       cluster.secret.empty() ? "" : token);
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
    progress.steps = last_step(job) * job.options.workers;
    for (const Step step : first_steps(job)) progress.step += step;
    const Horizon& horizon = job.run.parts->horizon;
    progress.epochs = horizon.epoch_of(horizon.steps);
    return progress;
  }

  // In processes, each of which has as many ranks as this one.
  static RunBegin begin_of(const TrainJob& job) {
    const RunConfig& run = job.run;
    const auto of_each = static_cast<std::int32_t>(job.local_ranks.size());
    const std::int32_t begin = run.beginning_workers();
    const std::int32_t least = run.min_workers > 0 ? run.min_workers : begin / 2 + 1;
    const bool continues = changes_members(run.parts->plan);
    return {begin / of_each, run.workers() / of_each,
            continues ? (least + of_each - 1) / of_each : begin / of_each};
  }

  static std::shared_ptr<RunTally> make_tally(const TrainJob& job, const RunOutput& output,
                                              RunDisplay& display) {
    auto tally = std::make_shared<RunTally>(
        progress_before(job), output.kept_losses(),
        [&display](const RunProgress& progress) { display.show(progress); }, job.options.workers);
    tally->stop_after(job.options.early_stop);
    if (job.run.parts->horizon.by_samples) tally->end_by_epochs();
    if (job.run.resume)
      tally->begin_after(earlier_validations(rows_before(job), output_before(job).epochs));
    if (std::getenv(kReportBeginVariable) != nullptr)
      tally->tell_begin(
          [&display, line = text_of(begin_of(job)) + "\n"] { display.say_error(line); });
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
    // Ends the rendezvous of processes that still connect; its first reason counts.
    if (config.cluster)
      config.cluster->cancelled = [stop_requested, end] {
        return stop_requested() || end->has_ended();
      };
    const Duration timeout = config.timeout;
    auto runtime = std::make_unique<Runtime>(std::move(config), end, files);
    bool stopping = false;
    for (;;) {
      if (auto result = end->wait_for(kPollInterval)) {
        if (!ends(*runtime, shut_down_timeout(*result, timeout))) {
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
  static bool ends(Runtime& runtime, Duration timeout) {
    if (!runtime.shut_down(timeout)) return false;
    const Expected<void> closed = runtime.close(kCloseTimeouts);
    if (!closed) spdlog::warn("{}: this process ends without it", closed.error().message);
    return closed.ok();
  }

  CLI::App* app_ = nullptr;
  TrainOptions options_;
  const std::string date_ = summary_date();  // of the beginning
};

}  // namespace

std::unique_ptr<Command> make_train_command() { return std::make_unique<TrainCommand>(); }

}  // namespace grapevine
