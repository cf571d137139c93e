#include "apps/train_command.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <ostream>

#include "actors/files.hpp"
#include "apps/console.hpp"
#include "apps/monitoring/metrics_endpoint.hpp"
#include "apps/monitoring/tensorboard_log.hpp"
#include "apps/run_end.hpp"
#include "apps/run_output.hpp"
#include "apps/signals.hpp"
#include "apps/submit_job.hpp"
#include "apps/summary.hpp"
#include "apps/train_folder.hpp"
#include "apps/train_job.hpp"
#include "apps/train_options.hpp"
#include "gpu/flat_params.hpp"
#include "net/addresses.hpp"

namespace grapevine {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(100);
constexpr Duration kShutDownPatience = std::chrono::seconds(10);

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
    if (auto read = read_job_file(*app_, options_); !read) return read;
    auto done = run_job(console);
    if (!done && done.error().code == Errc::bad_input)
      return located(done.error(), options_.places);
    return done;
  }

 private:
  Expected<void> run_job(Console& console) {
    if (auto length = settle_length(*app_, options_); !length) return length;
    std::signal(SIGPIPE, SIG_IGN);  // the reader of the progress may go: the training stays
    if (!options_.cluster.empty()) return submit(console);
    if (options_.processes != 0)
      return bad_input("--processes goes with --cluster; here, 'grapevine launch -n N -- train'");
    SignalFlags signals;
    auto made = make_train_job(options_);
    if (!made) return made.error();
    TrainJob job = std::move(*made);
    if (signals.stop_requested())
      return Error{Errc::failed, "stopped by a signal before training began"};
    if (!job.is_head()) return take_part(job, signals, console);
    auto output = RunOutput::create(job.out + "/metrics.csv", output_before(job));
    if (!output) return bad_input(output.error().message);  // nothing has been trained yet
    if (auto followed = add_followers(job, **output, console); !followed) return followed;
    announce(job, console);
    bool requeue = false;
    if (!goes_on_in_place(job))
      (*output)->before_first_step([out = job.out] { remove_outputs(out); });
    const bool occupied = job.run.occupied;
    RunResult result = train(job, *output, signals, requeue, console);
    // One that has not taken a step leaves what an earlier run has written.
    if (!(*output)->begun() && result.error && has_summary(job.out)) return *result.error;
    if (!(*output)->begun() && result.interrupted && occupied)
      return Error{Errc::failed,
                   "stopped by a signal before the first step: " + job.out + " stays as it was"};
    // The model matters more than the curve to it.
    const auto committed = (*output)->commit();
    auto reported = report(job, result, **output, *job.evaluator, console);
    if (reported && !committed) return committed;
    if (!reported || !requeue || !result.interrupted) return reported;
    if (!has_checkpoint(job.out))
      return Error{Errc::failed, "--requeue-command was not run: " + job.out +
                                     " holds no checkpoint to go on from"};
    // The command may start the next run, here, at once.
    output->reset();
    job.out_lock.reset();
    return run_requeue_command(job);
  }

  // The job is run elsewhere: what can be seen of it here is checked before.
  Expected<void> submit(Console& console) {
    if (auto checked = check_train_options(options_); !checked) return checked;
    if (options_.processes < 0)
      return bad_input("--processes " + std::to_string(options_.processes) +
                       ": expected 1 or more, or 0 for one in each slot");
    if (!options_.requeue_command.empty())
      return bad_input("--requeue-command does not go with --cluster: give the job again by hand");
    Submission job;
    job.cluster = options_.cluster;
    job.secret_file = options_.secret_file;
    job.arguments = travelling_arguments(*app_, options_);
    job.out = options_.out;
    // With --resume alone process 0 decides: it knows which folders there are.
    if (job.out.empty() && options_.resume.empty()) job.out = dated_folder(options_.algorithm);
    if (!job.out.empty()) job.arguments.push_back("--out=" + job.out);
    job.processes = options_.processes;
    job.patience = from_seconds(options_.join_timeout_s);
    return submit_job(job, console);
  }

  // Of a process that only trains: the head speaks for the run.
  static Expected<void> take_part(TrainJob& job, SignalFlags& signals, Console& console) {
    const auto end = std::make_shared<RunEnd>();
    const RunResult result =
        run_to_the_end(std::move(job.run), end, *end, signals, nullptr, console);
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
    return {first_steps(job), whole_epochs(job.run.resumed_most()), rows_before(job)};
  }

  // Whoever else wants to see the run as it goes on.
  static Expected<void> add_followers(const TrainJob& job, RunOutput& output, Console& console) {
    const TrainOptions& o = job.options;
    if (o.tensorboard) {
      auto log = TensorBoardLog::create(
          job.out + "/tensorboard", first_steps(job),
          [&output](const std::string& message) { output.on_warning(message); });
      if (!log) return log.error();
      output.add_follower(*std::move(log));
    }
    if (o.metrics_port == kNoMetricsPort) return {};
    // UCX names devices, which are no addresses.
    std::string host = o.transport == "ucx" ? "" : o.network_interface;
    if (auto address = interface_address(o.network_interface); address) host = *address;
    auto endpoint = MetricsEndpoint::create(
        host, static_cast<int>(o.metrics_port),
        {o.algorithm, o.model, o.data, o.transport, GRAPEVINE_VERSION, o.workers});
    if (!endpoint) return endpoint.error();
    console.err << "metrics: http://" << (host.empty() ? machine_name() : host) << ":"
                << (*endpoint)->port() << "/metrics" << std::endl;
    output.add_follower(*std::move(endpoint));
    return {};
  }

  // metrics.csv beside the checkpoint that a run goes on from; empty for one that begins.
  static std::string rows_before(const TrainJob& job) {
    if (!job.run.resume) return "";
    const std::filesystem::path checkpoint = job.run.resume->path;
    return (checkpoint.parent_path().parent_path() / "metrics.csv").string();
  }

  static void announce(const TrainJob& job, Console& console) {
    const TrainOptions& o = job.options;
    console.err << o.algorithm << ": " << o.model << " (" << format_count(job.parameters)
                << " parameters) on " << o.data << ", " << o.workers
                << (o.workers == 1 ? " worker" : " workers") << " x batch " << o.batch_size << ", "
                << format_count(job.run.parts->horizon.steps) << " steps" << std::endl;
  }

  // Runs to the end, or to an end that a signal asked for.
  static RunResult train(TrainJob& job, const std::shared_ptr<RunOutput>& output,
                         SignalFlags& signals, bool& requeue, Console& console) {
    const Step steps = job.run.parts->horizon.steps;
    std::int64_t begun = 0;
    for (const Step step : first_steps(job)) begun += step;
    ProgressOptions progress;
    progress.label = job.options.algorithm;
    progress.now = steady_now;
    progress.style = console.terminal ? detect_terminal(STDERR_FILENO) : TerminalStyle{};
    progress.start.step = begun;
    progress.start.steps = steps * job.options.workers;
    ProgressBar bar(console.err, progress);
    output->show_progress(&bar, steps * job.options.workers, begun);

    const bool requeues = !job.options.requeue_command.empty();
    RunResult result = run_to_the_end(std::move(job.run), output, output->end(), signals,
                                      requeues ? &requeue : nullptr, console);
    if (!result.error) bar.finish();
    return result;
  }

  // Passes signals on. SIGUSR1 asks for a checkpoint, or, where `requeue` is given, sets it and
  // stops.
  static RunResult run_to_the_end(RunConfig config, const std::shared_ptr<RunObserver>& observer,
                                  RunEnd& end, SignalFlags& signals, bool* requeue,
                                  Console& console) {
    if (config.cluster) config.cluster->cancelled = [&signals] { return signals.stop_requested(); };
    auto runtime = std::make_unique<Runtime>(std::move(config), observer);
    bool stopping = false;
    for (;;) {
      if (auto result = end.wait_for(kPollInterval)) {
        if (!runtime->shut_down(kShutDownPatience)) {
          // What a thread that does not come back uses must stay.
          console.thread_left_behind = true;
          static_cast<void>(runtime.release());
        }
        return std::move(*result);
      }
      const bool asked = signals.take_checkpoint_request();
      if (asked && requeue != nullptr) *requeue = true;
      const bool stop = signals.stop_requested() || (asked && requeue != nullptr);
      if (stop && !stopping) {
        stopping = true;
        runtime->request_stop();
      } else if (asked && requeue == nullptr) {
        runtime->request_checkpoint();
      }
    }
  }

  // The checkpoint is on disk: whoever runs next goes on from it.
  static Expected<void> run_requeue_command(const TrainJob& job) {
    const std::string& command = job.options.requeue_command;
    ::setenv("GRAPEVINE_REQUEUE_FOLDER", job.out.c_str(), 1);
    std::signal(SIGPIPE, SIG_DFL);                    // which commands expect
    const int status = std::system(command.c_str());  // NOLINT: the user's own command
    if (status == 0) return {};
    const std::string code = WIFEXITED(status) ? "exit code " + std::to_string(WEXITSTATUS(status))
                                               : "status " + std::to_string(status);
    return Error{Errc::failed, "--requeue-command '" + command + "' failed with " + code +
                                   ": go on by hand with --resume " + job.out};
  }

  static Expected<void> report(const TrainJob& job, const RunResult& result,
                               const RunOutput& output, Compute& evaluator, Console& console) {
    std::optional<Evaluation> test;
    Error evaluation_error;
    // A thread that was left behind may be in the midst of an evaluation.
    const bool evaluates = !result.error && !console.thread_left_behind;
    if (result.z.defined())
      if (auto saved = save_model(job, result); !saved) return saved;
    if (result.z.defined() && evaluates) {
      auto evaluated = evaluator.evaluate(result.z, result.buffers);
      if (evaluated)
        test = *evaluated;
      else if (job.data->info().test_size > 0)
        evaluation_error = evaluated.error();
    }
    const auto summary = make_summary(job, result, output.final_loss(), test);
    const std::string text = json_text(summary, 2) + "\n";
    if (auto written = write_file_atomically(job.out + "/summary.json", text); !written)
      return written;
    if (result.error) return *result.error;
    if (!evaluation_error.message.empty()) return evaluation_error;
    const std::optional<double> loss =
        output.has_losses() ? std::optional<double>(output.final_loss()) : std::nullopt;
    const std::string broken = find_not_finite(result, loss, test);
    if (!broken.empty())
      return Error{Errc::failed,
                   broken + " is not finite: try a smaller --lr; see " + job.out + "/metrics.csv"};
    print(job, result, summary, console);
    return {};
  }

  // A path may hold bytes that are no text.
  static std::string json_text(const nlohmann::ordered_json& object, int indent) {
    return object.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }

  static Expected<void> save_model(const TrainJob& job, const RunResult& result) {
    auto model = job.model(static_cast<std::uint64_t>(job.options.seed));
    if (!model) return model.error();
    if (auto loaded = load_flat(**model, result.z, result.buffers); !loaded) return loaded;
    auto file = AtomicFile::create(job.out + "/model.pt");
    if (!file) return file.error();
    if (auto saved = (*model)->save(file->temporary_path().string()); !saved) return saved;
    return file->commit();
  }

  static void print(const TrainJob& job, const RunResult& result,
                    const nlohmann::ordered_json& summary, Console& console) {
    if (job.options.json) {
      console.out << json_text(summary, -1) << std::endl;
      return;
    }
    const auto shown = [](const nlohmann::ordered_json& figure, int decimals) {
      return figure.is_null() ? std::string("-") : format_number(figure.get<double>(), decimals);
    };
    Table table({"time", "samples/s", "loss", "test accuracy", "sent", "staleness", "consensus"});
    table.add_row({format_duration(from_seconds(result.seconds)),
                   format_rate(summary.at("samples_per_second").is_null()
                                   ? std::nan("")
                                   : summary.at("samples_per_second").get<double>()),
                   shown(summary.at("final_loss"), 4), shown(summary.at("test_accuracy"), 4),
                   format_bytes(result.ledger.bytes_sent),
                   shown(summary.at("staleness").at("mean"), 2),
                   shown(summary.at("consensus_distance"), 4)});
    console.out << table;
    if (result.interrupted && has_checkpoint(job.out))
      console.out << "stopped early; go on with --resume " << job.out << "\n";
    else if (result.interrupted)
      console.out << "stopped early, without a checkpoint to go on from\n";
    console.out << "outputs in " << job.out << ": summary.json metrics.csv model.pt checkpoint/"
                << (job.options.trace == "on" ? " trace/" : "")
                << (job.options.tensorboard ? " tensorboard/" : "") << std::endl;
  }

  CLI::App* app_ = nullptr;
  TrainOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_train_command() { return std::make_unique<TrainCommand>(); }

}  // namespace grapevine
