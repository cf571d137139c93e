#include "apps/node/submit_job.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <ostream>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/node_agent.hpp"
#include "actors/cluster/node_layout.hpp"
#include "actors/cluster/output/line_parts.hpp"
#include "actors/protocol/build_version.hpp"
#include "actors/unexpected_messages.hpp"
#include "apps/console/event_queue.hpp"
#include "apps/console/line_writer.hpp"
#include "apps/console/signal_pipe.hpp"
#include "apps/node/node_link.hpp"
#include "messages/text/cut_to.hpp"
#include "net/addresses.hpp"
#include "net/tcp/credentials/secret_credentials.hpp"

namespace grapevine {
namespace {

constexpr Duration kSilence = std::chrono::seconds(30);
constexpr Duration kAnswerTimeout = std::chrono::seconds(30);
constexpr int kSubmitPollMs = 1000;
constexpr std::size_t kLongestBacklog = std::size_t{16} << 20;

std::string user_name() {
  const char* name = std::getenv("USER");
  if (name == nullptr)
    if (const passwd* entry = ::getpwuid(::getuid()); entry != nullptr) name = entry->pw_name;
  const std::string user =
      name != nullptr ? cut_to(name, kLongestName) : "user " + std::to_string(::getuid());
  return user + "@" + machine_name();
}

struct ListenerState {
  const char* name = "submitter";
};
using ListenerPointer = SubmitterActor::stateful_pointer<ListenerState>;

class Submitter {
 public:
  Submitter(const Submission& submission, ListenAddress first, std::string secret, Console& console)
      : submission_(submission),
        first_(std::move(first)),
        secret_(std::move(secret)),
        console_(console),
        writer_(console, kLongestBacklog, write_line, [this](std::int64_t lines) {
          queue_.post([this, lines] { acknowledge(lines); });
        }) {
    configure_for_nodes(system_config_, kSilence);
    system_.emplace(system_config_);
  }
  ~Submitter() {
    if (listener_) caf::anon_send_exit(listener_, caf::exit_reason::user_shutdown);
    listener_ = SubmitterActor{};
    pool_ = NodePoolActor{};
  }
  Submitter(const Submitter&) = delete;
  Submitter& operator=(const Submitter&) = delete;

  Expected<void> run() {
    if (auto found = find_pool(); !found) return found;
    const auto accepted = submit();
    if (!accepted) return accepted.error();
    job_ = accepted->job;
    announce(*accepted);
    while (!end_) turn();
    const bool read = writer_.drain(signals_, stop_);
    if (end_->failed && end_->error.code == Errc::stopped && read) say_where(*accepted);
    if (end_->failed) return end_->error;
    if (read) say_where(*accepted);
    return {};
  }

 private:
  // `from`: messages of the pool are verified only on the actor's thread. The parts of a line
  // follow each other.
  SubmitterActor::behavior_type listener(const std::shared_ptr<SealReader>& from) {
    return {
        [this, from, parts = LineJoiner()](JobOutput& output) mutable {
          if (!from->opens(*system_, output)) return;
          auto text = parts.add(std::move(output.line), output.continues);
          if (!text) return;
          const bool to_err = output.to_err || output.process != 0;
          queue_.post([this, line = JobLine{output.process, to_err, *std::move(text)}] {
            writer_.add(line);
          });
        },
        [this, from](JobEnded& ended) {
          if (from->opens(*system_, ended))
            queue_.post([this, ended = std::move(ended)] { finish(ended); });
          return JobEndHeard{};
        },
    };
  }

  Error gone() const {
    return {Errc::peer_down, "the first node at " + text_of(first_) +
                                 " died or fell silent, and the job with it: start the nodes, then "
                                 "resume with --resume"};
  }

  Expected<void> find_pool() {
    auto found = dial<NodePoolActor>(
        *system_, {"the first node", first_.host, first_.port, submission_.timeout,
                   [this] { return stop_asked(); }, tcp::credentials_of(submission_.tls, secret_)});
    if (!found && stop_) return Error{Errc::failed, "asked to stop before the job was submitted"};
    if (!found) return no_first_node(first_, found.error());
    pool_ = *std::move(found);
    return {};
  }

  Expected<JobAccepted> submit() {
    const auto stop = [this] { return stop_asked(); };
    auto session = greet_pool(*system_, pool_, secret_, kAnswerTimeout, stop);
    if (!session)
      return Error{session.error().code, fmt::format("the first node at {}: {}", text_of(first_),
                                                     session.error().message)};
    to_pool_ = std::move(session->to);
    const auto from = std::make_shared<SealReader>(std::move(session->from));
    listener_ = system_->spawn([this, from, pool = pool_](ListenerPointer self) {
      ignore_unexpected_messages(*self);
      self->monitor(pool);
      ignore_foreign_exits(self);
      self->set_down_handler([this, pool = pool.address()](const caf::down_msg& down) {
        if (down.source == pool) queue_.post([this] { finish({Seal{}, true, gone()}); });
      });
      return listener(from);
    });
    SubmitJob job;
    job.version = build_version();
    job.user = user_name();
    job.arguments = submission_.arguments;
    job.processes = submission_.processes;
    job.places = submission_.places;
    job.continues = submission_.continues;
    job.restarts = submission_.restarts;
    job.least = submission_.least;
    job.submitter = listener_;
    auto accepted = ask_actor<JobAccepted>(*system_, pool_, kAnswerTimeout,
                                           to_pool_.sealed(*system_, std::move(job)), {});
    if (!accepted)
      return Error{Errc::peer_down, fmt::format("the first node at {} does not answer: {}",
                                                text_of(first_), accepted.error().message)};
    if (accepted->refused)
      return Error{accepted->error.code, fmt::format("the first node at {} refused: {}",
                                                     text_of(first_), accepted->error.message)};
    return accepted;
  }

  void announce(const JobAccepted& job) {
    const std::string processes =
        job.processes == 1 ? "1 process" : fmt::format("{} processes", job.processes);
    console_.err << fmt::format("job {}: {} on {}, process 0 on {} in {}", job.job, processes,
                                counted(job.nodes, "node"), job.host, job.directory)
                 << std::endl;
  }

  void say_where(const JobAccepted& job) {
    namespace fs = std::filesystem;
    const std::string folder = submission_.out.empty()
                                   ? job.directory
                                   : (fs::path(job.directory) / submission_.out).string();
    console_.err << "outputs are on " << job.host << ", in " << folder << std::endl;
  }

  bool stop_asked() {
    for (const int number : signals_.take()) stop_ = stop_ || number != SIGUSR1;
    return stop_;
  }

  void turn() {
    std::array<pollfd, 2> waits{
        {{signals_.descriptor(), POLLIN, 0}, {queue_.descriptor(), POLLIN, 0}}};
    ::poll(waits.data(), waits.size(), kSubmitPollMs);
    for (const int number : signals_.take()) {
      stop_ = stop_ || number != SIGUSR1;
      caf::anon_send(pool_, to_pool_.sealed(*system_, SignalJob{{}, job_, number}));
    }
    queue_.run_ready();
  }

  // So that the pool sends more.
  void acknowledge(std::int64_t lines) {
    caf::anon_send(pool_, to_pool_.sealed(*system_, OutputWritten{Seal{}, job_, lines}));
  }

  static void write_line(Console& console, const JobLine& line) {
    std::ostream& stream = line.to_err ? console.err : console.out;
    if (line.process < 0) stream << "cluster: ";
    if (line.process > 0) stream << '[' << line.process << "] ";
    write_plain_line(console, line);
  }

  void finish(const JobEnded& ended) {
    if (!end_) end_ = ended;
  }

  const Submission& submission_;
  const ListenAddress first_;
  const std::string secret_;
  Console& console_;
  SignalPipe signals_;
  EventQueue queue_;
  LineWriter writer_;
  std::optional<JobEnded> end_;
  std::int64_t job_ = 0;  // as the pool numbers it
  bool stop_ = false;

  // Last: its actors use the members above, and end with it.
  caf::actor_system_config system_config_;
  std::optional<caf::actor_system> system_;
  SubmitterActor listener_;
  NodePoolActor pool_;
  Sealer to_pool_;
};

}  // namespace

Expected<void> submit_job(const Submission& submission, Console& console) {
  auto first = parse_listen_address("--cluster", submission.cluster, 1);
  if (!first) return first.error();
  auto secret = read_secret(submission.secret_file);
  if (!secret) return secret.error();
  if (auto checked = check_length(submission.arguments); !checked) return checked;
  return Submitter(submission, std::move(*first), std::move(*secret), console).run();
}

}  // namespace grapevine
