#include "apps/simulate/simulate_command.hpp"

#include <unistd.h>

#include <chrono>
#include <csignal>

#include "apps/console/json_text.hpp"
#include "apps/console/run_display.hpp"
#include "apps/console/signals.hpp"
#include "apps/console/text/figures.hpp"
#include "apps/console/text/progress_bar.hpp"
#include "apps/console/text/table.hpp"
#include "apps/console/text/terminal.hpp"
#include "apps/simulate/campaign.hpp"
#include "apps/simulate/sim_job.hpp"
#include "apps/simulate/sim_options.hpp"
#include "apps/simulate/sim_output.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

Timestamp steady_now() {
  return std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch());
}

class SimulateCommand : public Command {
 public:
  void declare(CLI::App& app) override {
    app_ = &app;
    declare_sim_options(app, options_);
  }

  Expected<void> run(Console& console) override {
    TrainOptions& train = options_.train;
    if (auto read = read_job_file(*app_, train); !read) return read;
    leave_out_unsuited(*app_, options_);
    name_own_wiring(*app_, train);
    auto done = run_job(console);
    if (!done && done.error().code == Errc::bad_input) return located(done.error(), train.places);
    return done;
  }

 private:
  Expected<void> run_job(Console& console) {
    if (auto read = read_trace_option(*app_, options_, console); !read) return read;
    if (auto length = settle_length(*app_, options_.train); !length) return length;
    if (auto fits = check_momentum(*app_, options_.train); !fits) return fits;
    // These fork: before any other thread is started.
    if (!options_.seeds.empty()) return run_campaign(*app_, options_, console);
    if (options_.minimize) return run_minimize(*app_, options_, console);
    std::signal(SIGPIPE, SIG_IGN);
    SignalFlags signals;
    RunDisplay display(console);
    Expected<void> done;
    try {
      done = run_once(display, signals, console);
    } catch (...) {
      done = Error{Errc::failed, exception_line(std::current_exception())};
    }
    display.drain([&signals] { return signals.stop_requested(); });
    return done;
  }

  Expected<void> run_once(RunDisplay& display, SignalFlags& signals, const Console& console) const {
    auto job = make_sim_job(options_);
    if (!job) return job.error();
    auto output = SimOutput::create(*app_, *job, display);
    if (!output) return output.error();
    announce(*job, display);
    job->job.run.world->stop_requested = [&signals] { return signals.stop_requested(); };
    ProgressOptions progress;
    progress.label = "simulate " + options_.train.algorithm;
    progress.now = steady_now;
    progress.style = console.terminal ? detect_terminal(STDERR_FILENO) : TerminalStyle{};
    progress.start.steps = job->job.run.parts->horizon.steps * job->job.options.workers;
    display.begin_progress(std::move(progress));
    const Timestamp begin = steady_now();
    const SimOutcome outcome = output->run(*job);
    const double seconds = to_seconds(steady_now() - begin);
    display.end_progress(!outcome.result.error);
    const auto summary = output->report(*job, outcome);
    if (!summary) return summary.error();
    print(*job, outcome, *summary, seconds, display);
    if (outcome.result.interrupted)
      return Error{Errc::failed, "stopped by a signal at virtual time " +
                                     format_duration(from_seconds(outcome.virtual_seconds))};
    return {};
  }

  void announce(const SimJob& job, RunDisplay& display) const {
    const TrainOptions& o = job.job.options;
    if (!o.notice.empty()) display.say_error(o.notice + "\n");
    std::string model = o.model;
    if (options_.parameters > 0) model = "a model";
    display.say_error("simulating " + o.algorithm + ": " + model + " (" +
                      format_count(job.parameters) + " parameters), " + std::to_string(o.workers) +
                      (o.workers == 1 ? " worker" : " workers") + ", " +
                      format_count(job.job.run.parts->horizon.steps) + " steps, maths " +
                      options_.maths + ", network " + job.network + "\n");
    if (!job.network_note.empty()) display.say_error("network: " + job.network_note + "\n");
    if (!job.faults.empty()) display.say_error("faults: " + faults_text(job.faults) + "\n");
  }

  static void print(const SimJob& job, const SimOutcome& outcome,
                    const nlohmann::ordered_json& summary, double seconds, RunDisplay& display) {
    if (job.job.options.json) return display.say_result(json_text(summary, -1) + "\n");
    const auto shown = [](const nlohmann::ordered_json& figure, int decimals) {
      return figure.is_null() ? std::string("-") : format_number(figure.get<double>(), decimals);
    };
    Table table({"virtual time", "step", "loss", "sent", "messages", "staleness", "lost ranks",
                 "events", "hash"});
    const auto& step = summary.at("step_seconds").at("mean");
    table.add_row(
        {format_duration(from_seconds(outcome.virtual_seconds)),
         step.is_null() ? "-" : format_duration(from_seconds(step.get<double>())),
         shown(summary.at("final_loss"), 4), format_bytes(outcome.result.ledger.bytes_sent),
         format_count(summary.at("messages_sent").get<std::int64_t>()),
         shown(summary.at("staleness").at("mean"), 2), std::to_string(outcome.result.lost.size()),
         format_count(static_cast<std::int64_t>(outcome.events)),
         summary.at("trace_hash").get<std::string>()});
    display.say_result(table.to_string() + "simulated in " +
                       format_duration(from_seconds(seconds)) + ", outputs in " + job.job.out +
                       "\n");
  }

  CLI::App* app_ = nullptr;
  SimOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_simulate_command() { return std::make_unique<SimulateCommand>(); }

}  // namespace grapevine
