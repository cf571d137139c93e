#include "apps/node/node_command.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <optional>
#include <ostream>

#include <spdlog/spdlog.h>
#include <caf/all.hpp>
#include <nlohmann/json.hpp>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/node_agent.hpp"
#include "actors/cluster/node_layout.hpp"
#include "actors/cluster/node_pool.hpp"
#include "actors/cluster/node_redirector.hpp"
#include "actors/cluster/secure/publish.hpp"
#include "apps/console/event_queue.hpp"
#include "apps/console/json_text.hpp"
#include "apps/console/line_writer.hpp"
#include "apps/console/signal_pipe.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/node/make_certificates.hpp"
#include "apps/node/node_link.hpp"
#include "apps/node/node_ranks.hpp"
#include "messages/text/number_text.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tcp_dial.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMaxSeconds = 1e5;
// Longer than process 0 takes to notice that another one is silent, and to write a checkpoint.
constexpr Duration kGrace = std::chrono::seconds(90);
constexpr Duration kNodeTimeout = std::chrono::seconds(10);
// From a signal to the end, without regard to the answer of the first node.
constexpr std::chrono::seconds kIdleLeave{5};
// Longer than a job takes to end: SIGTERM, SIGKILL, dropping a node, and the acknowledgement of the
// end.
constexpr std::chrono::seconds kBusyLeave{125};
// For the final flush: the last messages are still in flight when the connections close.
constexpr std::chrono::milliseconds kLinger{300};
constexpr int kNodePollMs = 1000;
constexpr std::size_t kLongestLog = std::size_t{1} << 20;  // of lines that wait for a reader

struct NodeOptions {
  std::string listen;
  std::string join;
  std::int32_t slots = 1;
  std::string secret_file;
  std::string tls;
  double join_timeout_s = 60;
  double timeout_s = 30;
  bool json = false;
};

std::string shown_processes(const StartRanks& start) {
  if (start.count == 1) return fmt::format("process {}", start.first);
  return fmt::format("processes {}..{}", start.first, start.first + start.count - 1);
}

// The log of a node, for people; with --json for programs: one object per line. A reader that does
// not read holds up nothing else.
class NodeLog {
 public:
  NodeLog(Console& console, bool json)
      : json_(json), writer_(console, kLongestLog, write_plain_line) {}

  // At the end of the node.
  void drain(SignalPipe& signals) {
    bool ends = true;
    writer_.drain(signals, ends);
  }

  void listening(const std::string& address) {
    if (json_) return put({{"event", "listening"}, {"address", address}});
    write("listening on " + address);
  }
  void joined(const std::string& first, const Enlisted& pool) {
    if (json_)
      return put(
          {{"event", "joined"}, {"first", first}, {"nodes", pool.nodes}, {"slots", pool.slots}});
    note(fmt::format("joined {}: {}, {}", first, counted(pool.nodes, "node"),
                     counted(pool.slots, "slot")));
  }
  void status(const PoolStatus& status, const std::string& what) {
    if (json_)
      return put({{"event", "status"},
                  {"what", what},
                  {"nodes", status.nodes},
                  {"slots", status.slots},
                  {"state", status.job > 0 ? "busy" : "idle"},
                  {"job", status.job},
                  {"processes", status.processes}});
    const std::string job = status.job == 0
                                ? "idle"
                                : fmt::format("job {} of {} on {}", status.job, status.user,
                                              counted(status.processes, "slot"));
    note(fmt::format("{}\n{}, {}, {}", what, counted(status.nodes, "node"),
                     counted(status.slots, "slot"), job));
  }
  void note(const std::string& text) {
    if (json_) return put({{"event", "note"}, {"what", text}});
    write(text);
  }

 private:
  void put(const nlohmann::ordered_json& line) { write(json_text(line)); }
  void write(const std::string& text) { writer_.add({0, false, text}); }

  const bool json_;
  LineWriter writer_;
};

// One node from its start to its end, on the main thread.
class Node {
 public:
  Node(const NodeOptions& options, ListenAddress listen, std::optional<ListenAddress> first,
       std::string secret, std::shared_ptr<const tcp::TlsContext> tls, Console& console)
      : options_(options),
        listen_(std::move(listen)),
        first_(std::move(first)),
        secret_(std::move(secret)),
        tls_(std::move(tls)),
        log_(console, options.json) {
    configure_for_nodes(system_config_, from_seconds(options.timeout_s));
    system_.emplace(system_config_);
  }
  ~Node() {
    ranks_.reset();
    for (const caf::actor& actor : own_)
      caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    own_.clear();
    pool_ = NodePoolActor{};
    agent_ = NodeAgentActor{};
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Expected<void> run() {
    const auto done = serve();
    log_.drain(signals_);
    return done;
  }

 private:
  bool is_first() const { return !first_; }
  bool finished() const { return end_at_ && Clock::now() >= *end_at_; }

  Expected<void> serve() {
    auto program = job_program();
    if (!program) return program.error();
    program_ = *std::move(program);
    if (auto opened = open(); !opened) return opened;
    if (auto enlisted = enlist(); !enlisted) {
      if (stop_) return {};  // asked to stop while it waited for the first node
      return enlisted;
    }
    while (!finished()) turn();
    if (failure_) return *failure_;
    return {};
  }

  // ---- the beginning ----

  Expected<void> open() {
    // CAF gives no reason for a failure.
    const std::string where = "cannot listen on " + text_of(listen_) + ": ";
    const char* const advice = ": is the port in use, and the host one of this machine?";
    if (const auto can = can_listen(listen_.host, listen_.port); !can)
      return Error{Errc::io, where + can.error().message + advice};
    const NodePoolActor published = is_first() ? system_->spawn(node_pool, pool_config())
                                               : system_->spawn(node_redirector, text_of(*first_));
    own_.push_back(caf::actor_cast<caf::actor>(published));
    const bool everywhere = is_any_host(listen_.host);
    const std::string host = everywhere && listen_.host == "0.0.0.0" ? "" : listen_.host;
    const auto port = publish_actor(*system_, published, {host, listen_.port, tls_});
    if (!port) return Error{Errc::io, where + port.error().message + advice};
    listen_.port = *port;
    if (is_first()) pool_ = published;
    log_.listening(text_of(listen_));
    return {};
  }

  // Where others reach this node, as far as it knows.
  std::string own_address() const {
    if (!is_any_host(listen_.host)) return text_of(listen_);
    const std::string host =
        is_first() ? tcp::primary_address(listen_.host == "::") : own_address_towards(first_->host);
    return text_of({host.empty() ? machine_name() : host, listen_.port});
  }

  NodePoolConfig pool_config() {
    NodePoolConfig config;
    config.secret = secret_;
    config.version = GRAPEVINE_VERSION;
    std::error_code ignored;
    config.directory = std::filesystem::current_path(ignored).string();
    config.grace = kGrace;
    config.reserve_port = reserve_tcp_port;
    config.on_change = [this](const PoolStatus& status, const std::string& what) {
      queue_.post([=] { log_.status(status, what); });
    };
    config.on_closed = [this] { queue_.post([this] { end_soon(); }); };
    return config;
  }

  NodeAgentConfig agent_config() {
    NodeAgentConfig config;
    config.from_pool = std::move(session_.from);
    config.hooks.start = [this](StartRanks start) {
      queue_.post([this, start = std::move(start)] {
        if (!is_first())
          log_.note(fmt::format("job {}: starting {} of {}", start.job, shown_processes(start),
                                start.processes));
        // It was under way when this node asked to leave.
        if (stop_) end_at_ = Clock::now() + kBusyLeave;
        ranks_->start(start);
      });
    };
    config.hooks.signal = [this](SignalRanks signal) {
      queue_.post([=] { ranks_->signal(signal.job, signal.number, signal.process); });
    };
    config.hooks.pool_gone = [this](PoolGone how) { queue_.post([=] { on_pool_gone(how); }); };
    return config;
  }

  Expected<void> enlist() {
    if (!is_first())
      if (auto found = find_pool(); !found) return found;
    address_ = own_address();  // only now the network is known to be there
    if (auto greeted = greet(); !greeted) return greeted;
    agent_ = system_->spawn(node_agent, agent_config());
    own_.push_back(caf::actor_cast<caf::actor>(agent_));
    ranks_.emplace(ranks_config());
    Enlist enlist;
    enlist.version = GRAPEVINE_VERSION;
    enlist.host = machine_name();
    enlist.address = address_;
    enlist.slots = options_.slots;
    enlist.agent = agent_;
    const auto answer = ask_actor<Enlisted>(*system_, pool_, kNodeTimeout,
                                            session_.to.sealed(*system_, std::move(enlist)),
                                            [this] { return stop_asked(); });
    if (!answer)
      return Error{Errc::peer_down, fmt::format("the first node at {} does not answer: {}",
                                                first_text(), answer.error().message)};
    if (answer->refused)
      return Error{answer->error.code, fmt::format("the first node at {} refused: {}", first_text(),
                                                   answer->error.message)};
    caf::anon_send(agent_, JoinedPool{caf::actor_cast<caf::actor_addr>(pool_)});
    if (!is_first()) log_.joined(first_text(), *answer);
    return {};
  }

  Expected<void> greet() {
    auto session =
        greet_pool(*system_, pool_, secret_, kNodeTimeout, [this] { return stop_asked(); });
    if (!session)
      return Error{session.error().code,
                   fmt::format("the first node at {}: {}", first_text(), session.error().message)};
    session_ = *std::move(session);
    return {};
  }

  Expected<void> find_pool() {
    auto found = dial<NodePoolActor>(*system_, {"the first node", first_->host, first_->port,
                                                from_seconds(options_.join_timeout_s),
                                                [this] { return stop_asked(); }, probes_, tls_});
    if (!found) return no_first_node(*first_, found.error());
    pool_ = *std::move(found);
    return {};
  }

  NodeRanksConfig ranks_config() {
    NodeRanksConfig config;
    config.program = program_;
    config.secret = secret_;
    std::error_code ignored;
    if (tls_) config.tls = std::filesystem::absolute(options_.tls, ignored).string();
    if (first_) config.first_host = first_->host;
    config.own_host = listen_.host;
    config.pool = first_text();
    config.on_output = [this](RankOutput output) {
      caf::anon_send(pool_, session_.to.sealed(*system_, std::move(output)));
    };
    config.on_exited = [this](RankExited exited) {
      caf::anon_send(pool_, session_.to.sealed(*system_, std::move(exited)));
    };
    return config;
  }

  std::string first_text() const { return first_ ? text_of(*first_) : address_; }

  // ---- the loop ----

  void turn() {
    std::vector<pollfd> waits = {{signals_.descriptor(), POLLIN, 0},
                                 {queue_.descriptor(), POLLIN, 0}};
    ranks_->add_to(waits);
    ::poll(waits.data(), waits.size(), poll_timeout_ms());
    for (const int number : signals_.take()) on_signal(number);
    queue_.run_ready();
    ranks_->handle(waits);
  }

  int poll_timeout_ms() const {
    if (!end_at_) return kNodePollMs;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*end_at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, kNodePollMs));
  }

  bool stop_asked() {
    for (const int number : signals_.take()) stop_ = stop_ || number != SIGUSR1;
    return stop_;
  }

  void on_signal(int number) {
    if (number == SIGUSR1) return;
    if (std::exchange(stop_, true)) {
      if (number == SIGINT) end_at_ = Clock::now();  // asked twice: now
      return;
    }
    log_.note(ranks_->running() ? "leaving the job and the pool" : "leaving");
    end_at_ = Clock::now() + (is_first() || ranks_->running() ? kBusyLeave : kIdleLeave);
    if (is_first())
      caf::anon_send(pool_, ClosePool{});
    else
      leave();
  }

  void leave() {
    own_.push_back(system_->spawn(
        [this, pool = pool_, message = session_.to.sealed(*system_, LeavePool{{}, agent_})](
            caf::event_based_actor* self) {
          const auto left = [this] { queue_.post([this] { end_soon(); }); };
          self->request(pool, std::chrono::duration_cast<Duration>(kBusyLeave), message)
              .then([left](const Left&) { left(); }, [left](const caf::error&) { left(); });
        }));
  }

  void end_soon() { end_at_ = Clock::now() + kLinger; }

  void on_pool_gone(PoolGone how) {
    ranks_->kill_all();
    if (stop_) return end_soon();
    end_at_ = Clock::now();
    failure_ = Error{Errc::peer_down, "the first node at " + first_text() + describe(how)};
  }

  static std::string describe(PoolGone how) {
    if (how == PoolGone::dropped)
      return " has removed this node: processes of a job still run here after SIGKILL: end them, "
             "then start the node again";
    return std::string(how == PoolGone::closed ? " has ended" : " died or fell silent") +
           ": start it, then this node, again";
  }

  const NodeOptions& options_;
  ListenAddress listen_;
  const std::optional<ListenAddress> first_;  // nothing: this is the first node
  const std::string secret_;
  const std::shared_ptr<const tcp::TlsContext> tls_;  // null: without TLS
  std::string program_;                               // of the processes of jobs
  std::string address_;  // where others reach this node, as far as it knows
  NodeLog log_;
  SignalPipe signals_;
  EventQueue queue_;
  std::optional<NodeRanks> ranks_;
  std::optional<Clock::time_point> end_at_;
  std::optional<Error> failure_;
  bool stop_ = false;

  // Last: its actors use the members above, and end with it.
  caf::actor_system_config system_config_;
  const std::shared_ptr<OpenProbes> probes_ = std::make_shared<OpenProbes>();
  std::optional<caf::actor_system> system_;
  NodePoolActor pool_;
  SealedSession session_;  // with it; its `from` is the agent's
  NodeAgentActor agent_;
  std::vector<caf::actor> own_;
};

class NodeCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app_ = &app;
    add_option(app, "listen", options_.listen, "HOST:PORT to listen on; port 0: one that is free");
    add_option(app, "join", options_.join, "HOST:PORT of the first node [this is the first node]");
    add_option(app, "slots", options_.slots, "processes of a job that this node runs at a time");
    add_option(app, "secret-file", options_.secret_file,
               "file with the secret that all nodes and submitters share "
               "[GRAPEVINE_CLUSTER_SECRET]");
    add_option(app, "tls", options_.tls,
               "folder with certificates: encrypt what this node and the processes of its jobs "
               "exchange over the network, which all nodes and submitters must do [off]");
    add_option(app, "join-timeout", options_.join_timeout_s,
               "seconds to try to reach the first node");
    add_option(app, "timeout", options_.timeout_s,
               "seconds of silence after which another node counts as dead");
    add_switch(app, "json", options_.json, "print events as JSON objects, one per line");
    add_option(app, "config", config_, "TOML file with options");
    declare_certificates(app);
    app.footer(
        "Then, from anywhere that reaches the first node: grapevine train --cluster HOST:PORT …\n"
        "Every user with the secret can run jobs here as this user. See docs/cluster.md.");
  }

  bool computes() const override { return false; }

  Expected<void> run(Console& console) override {
    if (auto read = read_config_file(*app_, config_); !read) return read;
    certificates_.json = options_.json;
    if (!certificates_.folder.empty()) return make_certificates(certificates_, console.out);
    std::signal(SIGPIPE, SIG_IGN);  // the reader of the output may end: the node continues
    raise_descriptor_limit();
    if (options_.listen.empty()) return bad_input("--listen is missing: give HOST:PORT");
    auto listen = parse_listen_address("--listen", options_.listen);
    if (!listen) return listen.error();
    std::optional<ListenAddress> first;
    if (!options_.join.empty()) {
      auto parsed = parse_listen_address("--join", options_.join, 1);
      if (!parsed) return parsed.error();
      first = std::move(*parsed);
    }
    if (auto checked = check_numbers(); !checked) return checked;
    auto tls = tcp::load_certificates(options_.tls);
    if (!tls) return tls.error();
    auto secret = read_secret(options_.secret_file);
    if (!secret) return secret.error();
    if (secret->empty() && !is_loopback_host(listen->host))
      return bad_input(
          "--listen " + options_.listen +
          ": every user who reaches that port could run jobs here: give --secret-file FILE, "
          "or listen on 127.0.0.1");
    if (secret->empty())
      spdlog::warn("no --secret-file: every user of this machine can run jobs here as this user");
    else if (secret->size() < kShortestGoodSecret)
      spdlog::warn("the secret has {} characters: use {} random ones or more, as it can be guessed",
                   secret->size(), kShortestGoodSecret);
    return Node(options_, std::move(*listen), std::move(first), std::move(*secret), *std::move(tls),
                console)
        .run();
  }

 private:
  // Not from the environment: an option that is meant for another verb must not write keys.
  void declare_certificates(CLI::App& app) {
    add_option(app, "make-certificates", certificates_.folder,
               "write new certificates for --tls to this folder, and end")
        ->envname("");
    add_list(app, "hosts", certificates_.hosts,
             "with --make-certificates: a folder with a key of its own for each of these names, "
             "comma-separated [one folder for all machines]")
        ->envname("");
    add_option(app, "days", certificates_.days,
               "with --make-certificates: days for which they are valid")
        ->envname("");
    add_switch(app, "overwrite", certificates_.overwrite,
               "with --make-certificates: replace those that are there")
        ->envname("");
  }

  Expected<void> check_numbers() const {
    if (options_.slots < 1 || options_.slots > kMaxSlots)
      return bad_input(fmt::format("--slots {}: expected 1..{}", options_.slots, kMaxSlots));
    if (!(options_.join_timeout_s > 0 && options_.join_timeout_s <= kMaxSeconds))
      return bad_input("--join-timeout " + number_text(options_.join_timeout_s) +
                       ": expected seconds, more than 0 and at most 100000");
    if (!(options_.timeout_s >= to_seconds(kLeastNodeSilence) && options_.timeout_s <= kMaxSeconds))
      return bad_input("--timeout " + number_text(options_.timeout_s) + ": expected seconds, " +
                       number_text(to_seconds(kLeastNodeSilence)) + "..100000");
    return {};
  }

  CLI::App* app_ = nullptr;
  NodeOptions options_;
  CertificateOptions certificates_;
  std::string config_;
};

}  // namespace

std::unique_ptr<Command> make_node_command() { return std::make_unique<NodeCommand>(); }

}  // namespace grapevine
