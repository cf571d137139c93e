#include "apps/node/node_service.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <utility>

#include "actors/cluster/node_layout.hpp"
#include "actors/cluster/node_redirector.hpp"
#include "actors/cluster/secure/publish.hpp"
#include "actors/protocol/build_version.hpp"
#include "apps/node/node_link.hpp"
#include "apps/train/resume/places_of_run.hpp"
#include "net/tcp/credentials/secret_credentials.hpp"

namespace grapevine {
namespace {

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

std::string shown_processes(const StartRanks& start) {
  if (start.count == 1) return fmt::format("process {}", start.first);
  return fmt::format("processes {}..{}", start.first, start.first + start.count - 1);
}

}  // namespace

NodeService::NodeService(const NodeOptions& options, ListenAddress listen,
                         std::optional<ListenAddress> first, std::string secret,
                         std::shared_ptr<const tcp::TlsContext> tls, Console& console)
    : options_(options),
      listen_(std::move(listen)),
      first_(std::move(first)),
      secret_(std::move(secret)),
      tls_(std::move(tls)),
      log_(console, options.json) {
  configure_for_nodes(system_config_, from_seconds(options.timeout_s));
  system_.emplace(system_config_);
}

NodeService::~NodeService() {
  ranks_.reset();
  for (const caf::actor& actor : own_) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  own_.clear();
  pool_ = NodePoolActor{};
  agent_ = NodeAgentActor{};
}

Expected<void> NodeService::run() {
  const auto done = serve();
  log_.drain(signals_);
  return done;
}

bool NodeService::is_first() const { return !first_; }

bool NodeService::finished() const { return end_at_ && Clock::now() >= *end_at_; }

Expected<void> NodeService::serve() {
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

Expected<void> NodeService::open() {
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
  const auto port =
      publish_actor(*system_, published, {host, listen_.port, tcp::credentials_of(tls_, secret_)});
  if (!port) return Error{Errc::io, where + port.error().message + advice};
  listen_.port = *port;
  if (is_first()) pool_ = published;
  log_.listening(text_of(listen_));
  return {};
}

std::string NodeService::own_address() const {
  if (!is_any_host(listen_.host)) return text_of(listen_);
  const std::string host =
      is_first() ? tcp::primary_address(listen_.host == "::") : own_address_towards(first_->host);
  return text_of({host.empty() ? machine_name() : host, listen_.port});
}

NodePoolConfig NodeService::pool_config() {
  NodePoolConfig config;
  config.secret = secret_;
  config.version = build_version();
  std::error_code ignored;
  config.directory = std::filesystem::current_path(ignored).string();
  config.grace = kGrace;
  config.reserve_port = reserve_tcp_port;
  config.places_of_run = places_of_run;
  config.on_change = [this](const PoolStatus& status, const std::string& what) {
    queue_.post([=] { log_.status(status, what); });
  };
  config.on_closed = [this] { queue_.post([this] { end_soon(); }); };
  return config;
}

NodeAgentConfig NodeService::agent_config() {
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

Expected<void> NodeService::enlist() {
  if (!is_first())
    if (auto found = find_pool(); !found) return found;
  address_ = own_address();  // only now the network is known to be there
  if (auto greeted = greet(); !greeted) return greeted;
  agent_ = system_->spawn(node_agent, agent_config());
  own_.push_back(caf::actor_cast<caf::actor>(agent_));
  ranks_.emplace(ranks_config());
  Enlist enlist;
  enlist.version = build_version();
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

Expected<void> NodeService::greet() {
  auto session =
      greet_pool(*system_, pool_, secret_, kNodeTimeout, [this] { return stop_asked(); });
  if (!session)
    return Error{session.error().code,
                 fmt::format("the first node at {}: {}", first_text(), session.error().message)};
  session_ = *std::move(session);
  return {};
}

Expected<void> NodeService::find_pool() {
  auto found = dial<NodePoolActor>(
      *system_,
      {"the first node", first_->host, first_->port, from_seconds(options_.join_timeout_s),
       [this] { return stop_asked(); }, tcp::credentials_of(tls_, secret_)});
  if (!found) return no_first_node(*first_, found.error());
  pool_ = *std::move(found);
  return {};
}

NodeRanksConfig NodeService::ranks_config() {
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

std::string NodeService::first_text() const { return first_ ? text_of(*first_) : address_; }

// ---- the loop ----

void NodeService::turn() {
  std::vector<pollfd> waits = {{signals_.descriptor(), POLLIN, 0},
                               {queue_.descriptor(), POLLIN, 0}};
  ranks_->add_to(waits);
  ::poll(waits.data(), waits.size(), poll_timeout_ms());
  for (const int number : signals_.take()) on_signal(number);
  queue_.run_ready();
  ranks_->handle(waits);
}

int NodeService::poll_timeout_ms() const {
  if (!end_at_) return kNodePollMs;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(*end_at_ - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, kNodePollMs));
}

bool NodeService::stop_asked() {
  for (const int number : signals_.take()) stop_ = stop_ || number != SIGUSR1;
  return stop_;
}

void NodeService::on_signal(int number) {
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

void NodeService::leave() {
  own_.push_back(system_->spawn(
      [this, pool = pool_, message = session_.to.sealed(*system_, LeavePool{{}, agent_})](
          caf::event_based_actor* self) {
        const auto left = [this] { queue_.post([this] { end_soon(); }); };
        self->request(pool, std::chrono::duration_cast<Duration>(kBusyLeave), message)
            .then([left](const Left&) { left(); }, [left](const caf::error&) { left(); });
      }));
}

void NodeService::end_soon() { end_at_ = Clock::now() + kLinger; }

void NodeService::on_pool_gone(PoolGone how) {
  ranks_->kill_all();
  if (stop_) return end_soon();
  end_at_ = Clock::now();
  failure_ = Error{Errc::peer_down, "the first node at " + first_text() + describe(how)};
}

std::string NodeService::describe(PoolGone how) {
  if (how == PoolGone::dropped)
    return " has removed this node: processes of a job still run here after SIGKILL: end them, "
           "then start the node again";
  return std::string(how == PoolGone::closed ? " has ended" : " died or fell silent") +
         ": start it, then this node, again";
}

}  // namespace grapevine
