#include "apps/launch/launch_command.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include "actors/cluster/process_supervision.hpp"
#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/record/resume_hint.hpp"
#include "apps/console/help_format.hpp"
#include "apps/console/read_up_to.hpp"
#include "apps/console/signal_pipe.hpp"
#include "apps/console/signals.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/launch/child_process.hpp"
#include "apps/launch/launch_job.hpp"
#include "apps/launch/launch_plan.hpp"
#include "apps/launched/launcher_environment.hpp"
#include "apps/train/options/given_run.hpp"
#include "messages/text/names.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tls/tls_context.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMaxProcesses = 4096;
constexpr std::int32_t kMaxRestarts = 1'000'000;
constexpr int kDefaultRestarts = 3;
constexpr std::size_t kLargestHostfile = 1 << 20;  // bytes
constexpr double kMaxGraceSeconds = 86400;
constexpr std::size_t kJobTokenBytes = 32;
// ssh cannot ask the user, and a lost host ends the connection within about a minute.
constexpr char kSsh[] = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15";

// The part of this environment that a process on another machine receives: its options and its
// transport's.
std::vector<std::string> settings() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto begins = [&text](const char* with) { return text.rfind(with, 0) == 0; };
    const bool ours = begins("GRAPEVINE_") || begins("UCX_");
    // All users of both machines see the command line that these become part of.
    const bool secret = begins("GRAPEVINE_CLUSTER_SECRET=") || begins(kJobTokenVariable);
    if (ours && !secret && !begins("GRAPEVINE_LAUNCH_")) result.push_back(text);
  }
  return result;
}

// CLI11 does not parse arguments after '--'.
class LaunchFormatter final : public HelpFormat {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: grapevine launch [OPTIONS] -- COMMAND [OPTIONS OF THE COMMAND]\n";
  }
};

class LaunchCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app_ = &app;
    add(app, "-n,--processes", processes_, "processes to start [all slots of the hostfile]");
    add(app, "--hostfile", hostfile_, "file with lines 'host slots=N': where to start them [here]");
    add(app, "--ssh", ssh_, "command that runs another command on a host")->capture_default_str();
    add(app, "--on-failure", on_failure_,
        "when a process dies: stop the others, continue with the others, or restart the job")
        ->capture_default_str();
    add(app, "--restarts", restarts_,
        "restarts of the job at most, each from its last checkpoint where --out is given: without "
        "--on-failure, or with restart [3]; with continue: of processes, which join the others "
        "again [0]");
    add(app, "--port", port_, "port of process 0 [one that is free]");
    add(app, "--network-interface", interface_, "interface that the processes use, e.g. eth0");
    add(app, "--tls", tls_,
        "folder with certificates, the same on each host: --tls of the processes [off]");
    add(app, "--grace", grace_s_, "seconds between asking a process to end and killing it")
        ->capture_default_str();
    app.add_flag("--json", json_, "like --json of the command: its objects are the output")
        ->envname("GRAPEVINE_LAUNCH_JSON");
    add(app, "--config", config_, "TOML file with these options");
    app.prefix_command();
    app.formatter(std::make_shared<LaunchFormatter>());
    app.footer("For example: grapevine launch -n 4 -- train --algorithm sgp");
  }

  bool computes() const override { return false; }

  Expected<void> run(Console& console) override {
    if (auto read = read_verb(); !read) return read;
    if (auto read = read_config_file(*app_, config_); !read) return read;
    if (json_ && !says_json()) verb_.emplace_back("--json");
    if (auto checked = check(); !checked) return checked;
    if (auto planned = plan(); !planned) return planned;
    auto program = job_program();
    if (!program) return program.error();
    program_ = *std::move(program);
    raise_descriptor_limit();
    std::signal(SIGPIPE, SIG_IGN);  // the reader of the output may go: the job stays
    SignalPipe signals;
    name_folders();
    found_ = checkpoint_mark(folder_);
    for (int restart = 0;; ++restart) {
      LaunchJob job(job_options(), signals, console);
      const auto commands = make_commands(restart > 0, console);
      if (!commands) return commands.error();
      if (auto started = job.start(*commands); !started) return started;
      const auto done = job.wait();
      console.exit_code = job.exit_code();
      const bool again = !done && done.error().code != Errc::bad_input &&
                         done.error().code != Errc::stopped && !job.stop_requested();
      if (!again || survivors_continue() || restart == restarts_) return with_hint(done);
      const std::string& what = done.error().message;
      const std::string why =
          "launch: " + what.substr(0, what.size() - resume_hint_in(what).size()) + ": ";
      if (job.lost_connection()) {
        console.err << why << "waiting " << kEndOverSsh.count()
                    << " s until the processes on other hosts have ended" << std::endl;
        if (!waits(signals, kEndOverSsh)) return with_hint(done);
      }
      console.exit_code.reset();
      console.err << why << "starting again (" << restart + 1 << " of " << restarts_ << ")"
                  << std::endl;
    }
  }

 private:
  // False: a request to stop came first.
  static bool waits(SignalPipe& signals, std::chrono::milliseconds time) {
    using Clock = std::chrono::steady_clock;
    for (const auto until = Clock::now() + time; Clock::now() < until;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      pollfd wait{signals.descriptor(), POLLIN, 0};
      ::poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
      for (const int number : signals.take())
        if (number != SIGUSR1) return false;
    }
    return true;
  }

  // Readable from the environment, under names that mean nothing to the verb.
  template <class T>
  static CLI::Option* add(CLI::App& app, const std::string& names, T& value,
                          const std::string& help) {
    const std::string name = names.substr(names.find("--") + 2);
    return app.add_option(names, value, help)
        ->envname(environment_name("launch-" + name))
        ->transform(verb_options::checked<T>());
  }

  bool says_json() const { return std::find(verb_.begin(), verb_.end(), "--json") != verb_.end(); }

  // The arguments after the options: '--' and the verb, or only the verb.
  Expected<void> read_verb() {
    verb_ = app_->remaining();
    const bool marked = !verb_.empty() && verb_.front() == "--";
    if (marked) verb_.erase(verb_.begin());
    if (verb_.empty())
      return bad_input("no command to start: e.g. grapevine launch -n 4 -- train --algorithm sgp");
    if (marked || verb_.front()[0] != '-') return {};
    std::vector<std::string> known;
    for (const CLI::Option* option : app_->get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    return unknown_name("option", verb_.front().substr(0, verb_.front().find('=')), known);
  }

  Expected<void> check() {
    if (app_->count("--processes") == 0 && hostfile_.empty())
      return bad_input("the number of processes is missing: give -n N, or a --hostfile");
    if (app_->count("--processes") > 0)
      if (auto checked = check_range("-n", processes_, 1, kMaxProcesses); !checked) return checked;
    if (app_->count("--port") > 0)
      if (auto checked = check_range("--port", port_, 1, 65535); !checked) return checked;
    if (auto checked = check_range("--grace", grace_s_, 0, kMaxGraceSeconds, " seconds"); !checked)
      return checked;
    if (words_in(ssh_).empty()) return bad_input("--ssh is empty: give a command");
    return check_failure_options();
  }

  Expected<void> check_failure_options() {
    const bool given = app_->count("--restarts") > 0;
    if (on_failure_ != "stop" && on_failure_ != "continue" && on_failure_ != "restart")
      return unknown_name("--on-failure", on_failure_, {"stop", "continue", "restart"});
    if (given)
      if (auto checked = check_range("--restarts", restarts_, 0, kMaxRestarts); !checked)
        return checked;
    if (on_failure_ == "stop" && app_->count("--on-failure") > 0 && restarts_ > 0)
      return bad_input(
          fmt::format("--restarts {} and --on-failure stop: leave one of them out, or "
                      "GRAPEVINE_LAUNCH_RESTARTS",
                      restarts_));
    if (!given && on_failure_ == "restart") restarts_ = kDefaultRestarts;
    return {};
  }

  bool survivors_continue() const { return on_failure_ == "continue"; }
  bool trains() const { return verb_.front() == "train"; }
  bool joins_another() const {
    return joins_a_run(verb_, std::getenv(environment_name("join").c_str()));
  }
  bool reports_begin() const { return trains() && !joins_another() && survivors_continue(); }

  LaunchJobOptions job_options() const {
    LaunchJobOptions options;
    options.survivors_continue = survivors_continue();
    if (survivors_continue()) options.restarts = restarts_;
    options.plain_output = says_json();
    options.grace = std::chrono::milliseconds(std::llround(grace_s_ * 1000));
    options.ends_with_head = !joins_another();
    if (trains()) options.after_head = options.grace;
    options.reports_begin = reports_begin();
    return options;
  }

  Expected<void> plan() {
    const std::string here = machine_name();
    std::vector<HostSlots> hosts = {{here, processes_}};
    if (!hostfile_.empty()) {
      std::error_code ignored;
      std::ifstream file(hostfile_);
      if (!file || fs::is_directory(hostfile_, ignored))
        return bad_input(hostfile_ + ": cannot be read: give lines like 'node1 slots=4'");
      const std::string text = read_up_to(file, kLargestHostfile);
      if (text.size() > kLargestHostfile)
        return bad_input(hostfile_ + ": is larger than 1 MiB: give lines like 'node1 slots=4'");
      auto parsed = parse_hostfile(text, hostfile_);
      if (!parsed) return parsed.error();
      hosts = std::move(*parsed);
    }
    std::int64_t slots = 0;
    for (const HostSlots& host : hosts) slots += host.slots;
    if (app_->count("--processes") == 0) {
      if (slots > kMaxProcesses)
        return bad_input(fmt::format("{}: {} slots, of which at most {} can be used: give -n",
                                     hostfile_, slots, kMaxProcesses));
      processes_ = static_cast<std::int32_t>(slots);
    }
    auto placed = place_ranks(hosts, processes_, here);
    if (!placed) return placed.error();
    placements_ = std::move(*placed);
    head_host_ = head_host(placements_, here);
    if (auto checked = check_certificates(); !checked) return checked;
    if (auto read = read_token(); !read) return read;
    return use_interface();
  }

  // The job's secret where the user has chosen it, for those that join or control the job.
  Expected<void> read_token() {
    const char* const token = std::getenv(kJobTokenVariable);
    if (token != nullptr) given_token_ = token;
    const bool all_here = std::all_of(placements_.begin(), placements_.end(),
                                      [](const LaunchPlace& place) { return place.here; });
    if (!all_here && given_token_.find('\n') != std::string::npos)
      return bad_input(std::string(kJobTokenVariable) +
                       " has more than one line: processes on other hosts get it as one line");
    return {};
  }

  // Of a process on this machine; the folders of other machines are theirs.
  Expected<void> check_certificates() const {
    const bool here = std::any_of(placements_.begin(), placements_.end(),
                                  [](const LaunchPlace& place) { return place.here; });
    if (!here) return {};
    const auto loaded = tcp::load_certificates(tls_);
    if (!loaded) return loaded.error();
    return {};
  }

  // Of rank 0 on this machine; the interfaces of other machines are theirs.
  Expected<void> use_interface() {
    if (interface_.empty() || !placements_.front().here) return {};
    auto address = interface_address(interface_);
    const bool of_ucx = !address && check_network_devices(interface_).ok();  // without an address
    if (!address && !of_ucx) return address.error();
    if (address) head_host_ = std::move(*address);
    return {};
  }

  Expected<std::vector<LaunchedCommand>> make_commands(bool restarted, Console& console) {
    Head head{head_host_, static_cast<std::uint16_t>(port_)};
    if (port_ == 0) {
      auto port = reserve_tcp_port();
      if (!port) return Error{port.error().code, port.error().message + ": use --port"};
      reserved_ = *std::move(port);
      head.port = reserved_.number;
    }
    std::vector<std::string> arguments = verb_;
    std::vector<std::string> variables;
    if (!interface_.empty()) variables.push_back("GRAPEVINE_NETWORK_INTERFACE=" + interface_);
    if (!tls_.empty()) variables.push_back(environment_name("tls") + "=" + tls_);
    if (restarted) resume(arguments, variables, console);
    arguments.insert(arguments.begin(), program_);
    const std::string token = given_token_.empty() ? random_hex(kJobTokenBytes) : given_token_;
    std::vector<LaunchedCommand> commands;
    for (const LaunchPlace& placement : placements_)
      commands.push_back({placement, command_of(placement, head, token, variables, arguments)});
    return commands;
  }

  ChildCommand command_of(const LaunchPlace& placement, const Head& head, const std::string& token,
                          const std::vector<std::string>& more,
                          const std::vector<std::string>& arguments) const {
    std::vector<std::string> variables = rank_variables(placement, head);
    variables.insert(variables.end(), more.begin(), more.end());
    if (placement.rank == 0 && reports_begin())
      variables.push_back(kReportBeginVariable + std::string("=1"));
    if (placement.rank == 0 && !survivors_continue())
      variables.push_back(kLossEndsJobVariable + std::string("=1"));
    if (placement.here) {
      variables.push_back(kJobTokenVariable + ("=" + token));
      return {arguments, variables, false, ""};
    }
    std::vector<std::string> all = settings();  // `env` lets the last one count
    all.insert(all.end(), variables.begin(), variables.end());
    std::error_code ignored;
    const std::string directory = fs::current_path(ignored).string();
    return {
        ssh_command(words_in(ssh_), placement.host, directory, all, arguments), {}, true, token};
  }

  // The output folder of the verb and its checkpoint to resume from, as far as options give them.
  void name_folders() {
    if (trains()) {
      GivenRun given = given_run({verb_.begin() + 1, verb_.end()});
      folder_ = std::move(given.out);
      resumed_ = std::move(given.resume);
    } else {
      folder_ = option_value(verb_, "out").value_or("");
    }
  }

  // Identifies the newest checkpoint of a folder; nothing: there is none.
  using CheckpointMark = std::optional<std::pair<fs::path, fs::file_time_type>>;
  static CheckpointMark checkpoint_mark(const std::string& folder) {
    if (folder.empty()) return std::nullopt;
    const fs::path latest = fs::path(folder) / "checkpoint" / "latest";
    std::error_code missing;
    // A kill between two renames leaves a link that points to nothing.
    const fs::path newest = fs::exists(latest, missing) ? latest : fs::path(checkpoint_at(folder));
    if (newest.empty()) return std::nullopt;
    const fs::path itself = fs::canonical(newest, missing);
    if (missing) return std::nullopt;
    const auto time = fs::last_write_time(itself, missing);
    if (missing) return std::nullopt;
    return std::pair(itself, time);
  }

  bool has_saved() const {
    const CheckpointMark mark = checkpoint_mark(folder_);
    return mark && mark != found_;
  }

  // The processes that know the checkpoint may all have ended. Another machine's
  // folder may be seen from here, or not.
  Expected<void> with_hint(const Expected<void>& done) const {
    if (done || folder_.empty()) return done;
    const std::string& line = done.error().message;
    if (done.error().code != Errc::peer_down && line != kEndedAtOnce) return done;
    const bool saved = has_saved();
    if (!resume_hint_in(line).empty() || (!saved && !placements_.front().here)) return done;
    return Error{done.error().code, line + resume_hint(saved ? folder_ : resumed_)};
  }

  // A restart resumes from a checkpoint of the previous run, not from the one that this run resumed
  // from, and not from one older than this job.
  void resume(std::vector<std::string>& arguments, std::vector<std::string>& variables,
              Console& console) const {
    const bool saved = has_saved();
    console.err << "launch: "
                << (saved               ? "resuming " + folder_
                    : !resumed_.empty() ? "resuming " + resumed_ + " again: no newer checkpoint"
                    : folder_.empty()   ? "from the beginning: no --out names a checkpoint"
                    : found_            ? "from the beginning: no new checkpoint in " + folder_
                                        : "from the beginning: no checkpoint in " + folder_)
                << std::endl;
    if (!saved) return;
    arguments = without_option(arguments, "resume");
    variables.push_back("GRAPEVINE_RESUME=" + folder_);
  }

  CLI::App* app_ = nullptr;
  std::int32_t processes_ = 0;
  std::string hostfile_;
  std::string ssh_ = kSsh;
  std::string on_failure_ = "stop";
  std::int32_t restarts_ = 0;
  std::int32_t port_ = 0;
  std::string interface_;
  std::string tls_;
  double grace_s_ = 60;
  bool json_ = false;
  std::string config_;

  std::vector<std::string> verb_;
  std::string program_;   // of the processes, also where its file is replaced meanwhile
  std::string folder_;    // of the checkpoints
  std::string resumed_;   // the checkpoint that the job resumes from
  CheckpointMark found_;  // there, before the job began
  std::vector<LaunchPlace> placements_;
  std::string head_host_;
  std::string given_token_;  // empty: each start of the job has a new one
  ReservedPort reserved_;    // of rank 0, without --port
};

}  // namespace

std::unique_ptr<Command> make_launch_command() { return std::make_unique<LaunchCommand>(); }

}  // namespace grapevine
