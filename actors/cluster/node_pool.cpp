#include "actors/cluster/node_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "actors/cluster/node_agent.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tcp_dial.hpp"

namespace grapevine {
namespace {

constexpr char kRequeue[] = "--requeue-command";
constexpr std::size_t kJobNonceBytes = 32;

Error no_seal() {
  return bad_input("the message does not prove that its sender knows the secret of this pool");
}

// The session was dropped because too many others have greeted since.
Error no_session() {
  return {Errc::peer_down, "the session of the sender is unknown: start again"};
}

Error other_version(const std::string& who, const std::string& theirs, const std::string& ours) {
  return bad_input(
      fmt::format("{} runs version {}, the first node version {}: install the same everywhere", who,
                  theirs, ours));
}

// One line of a text from another process.
std::string shown(std::string text) {
  constexpr std::size_t kLongest = 200;
  text.resize(std::min(text.size(), kLongest));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  return text;
}

// Only options, as `train --cluster` sends them: a job file of this machine might contain any.
Expected<void> check_arguments(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind(kRequeue, 0) == 0)
      return bad_input(fmt::format("{} is not for jobs of nodes: leave it out", kRequeue));
    if (argument.rfind("--", 0) != 0)
      return bad_input(
          fmt::format("'{}' is no option: a job of nodes has no job file", shown(argument)));
    if (argument == "--set") ++i;  // its value
  }
  return {};
}

std::string host_of(const std::string& address) {
  auto parts = tcp::split_address(address);
  return parts ? std::move(parts->first) : "";
}

std::string name_of(const Enlist& node) {
  return fmt::format("node {} ({})", node.address, node.host);
}

}  // namespace

void NodePoolState::init(NodePoolActor::stateful_pointer<NodePoolState> self,
                         NodePoolConfig config) {
  self_ = self;
  config_ = std::move(config);
  sessions_.emplace(config_.secret);
}

Greeting NodePoolState::on_greet(const Greet& greet) { return sessions_->greet(greet); }

template <class Message>
bool NodePoolState::trusts(const Message& message) {
  return sessions_->trusts(self_->system(), message);
}

Error NodePoolState::why_distrusted(const Seal& seal) const {
  return sessions_->is_forgotten(seal) ? no_session() : no_seal();
}

// Where the node belongs to the pool no longer, nothing is sent.
template <class Message>
void NodePoolState::send_sealed(const Enlist& node, Message message) {
  if (auto sealed = sessions_->sealed(self_->system(), node.seal.session, std::move(message)))
    self_->send(node.agent, *std::move(sealed));
}

// ---- members ----

PoolStatus NodePoolState::status() const {
  PoolStatus status;
  status.nodes = static_cast<std::int32_t>(members_.size());
  for (const Member& member : members_) status.slots += member.node.slots;
  if (!job_) return status;
  status.job = job_->id;
  status.processes = static_cast<std::int32_t>(job_->processes.size());
  status.user = job_->user;
  return status;
}

void NodePoolState::changed(const std::string& what) { config_.on_change(status(), what); }

Enlisted NodePoolState::on_enlist(const Enlist& enlist) {
  Enlisted answer;
  answer.refused = true;
  Member member{enlist, std::nullopt};
  member.node.host = shown(enlist.host);
  member.node.address = shown(enlist.address);
  const std::string who = name_of(member.node);
  const bool trusted = trusts(enlist);
  if (!trusted) {
    answer.error = why_distrusted(enlist.seal);
  } else if (enlist.version != config_.version) {
    answer.error = other_version(who, shown(enlist.version), config_.version);
  } else if (enlist.slots < 1 || status().slots > kMaxSlots - enlist.slots) {
    answer.error = bad_input(
        fmt::format("{} offers {}: expected at least 1, and at most {} of all nodes together", who,
                    counted(enlist.slots, "slot"), kMaxSlots));
  } else if (closing_ || !enlist.agent) {
    answer.error = Error{Errc::peer_down, "the first node is about to end: start it again"};
  } else {
    answer.refused = false;
    // Process 0 runs on the first member, and other nodes may enlist before the first node's own.
    const bool own = enlist.agent.node() == self_->node() && !has_own_node();
    members_.insert(own ? members_.begin() : members_.end(), std::move(member));
    self_->monitor(enlist.agent);
    changed(who + " has joined");
  }
  if (trusted && answer.refused) sessions_->end(enlist.seal.session);
  answer.nodes = status().nodes;
  answer.slots = status().slots;
  return answer;
}

bool NodePoolState::has_own_node() const {
  return !members_.empty() && members_.front().node.agent.node() == self_->node();
}

caf::result<Left> NodePoolState::on_leave(const LeavePool& leave) {
  LeaveAnswer answer = self_->make_response_promise<Left>();
  const auto member = std::find_if(members_.begin(), members_.end(),
                                   [&](const Member& m) { return m.node.agent == leave.agent; });
  if (!trusts(leave) || member == members_.end()) {
    answer.deliver(Left{});
    return answer;
  }
  const bool busy = job_ && std::any_of(job_->shares.begin(), job_->shares.end(), [&](auto& share) {
                      return share.node.agent == leave.agent;
                    });
  const std::string who = name_of(member->node);
  if (!busy) {
    remove(static_cast<std::size_t>(member - members_.begin()), who + " has left");
    answer.deliver(Left{});
    return answer;
  }
  member->leaving = answer;
  stop_job(who + " is about to leave: the job stops with a checkpoint");
  return answer;
}

void NodePoolState::remove(std::size_t member, const std::string& what) {
  self_->demonitor(members_[member].node.agent.address());
  sessions_->end(members_[member].node.seal.session);
  members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(member));
  changed(what);
}

void NodePoolState::on_down(const caf::actor_addr& source) {
  if (job_ && job_->submitter.address() == source)
    stop_job("the submitter is lost: the job stops with a checkpoint");
  const auto member = std::find_if(members_.begin(), members_.end(), [&](const Member& m) {
    return m.node.agent.address() == source;
  });
  if (member == members_.end()) return;
  const std::string who = name_of(member->node);
  sessions_->end(member->node.seal.session);
  members_.erase(member);
  bool took_part = false;
  if (job_)
    for (const PoolJob::Share& share : job_->shares) {
      if (share.node.agent.address() != source) continue;
      took_part = true;
      job_->abandon(share);
    }
  changed(who + (took_part ? " died during the job" : " is gone"));
  if (!took_part) return;
  job_->blame(PoolJob::Cause::node_died, {Errc::peer_down, who + " died during the job"}, -1);
  ask_to_end(grace_after_loss());
  finish_where_all_ended();
}

// ---- submission of a job ----

Expected<void> NodePoolState::check_submission(const SubmitJob& submit) const {
  if (submit.version != config_.version)
    return other_version("'train --cluster'", shown(submit.version), config_.version);
  if (closing_) return Error{Errc::peer_down, "the first node is about to end: start it again"};
  if (!has_own_node()) return Error{Errc::peer_down, "the first node is still starting: try again"};
  if (job_)
    return Error{Errc::failed,
                 fmt::format("the nodes are busy with job {} of {}: try again when it has ended",
                             job_->id, job_->user)};
  if (!submit.submitter) return bad_input("the request names no submitter");
  if (auto checked = check_length(submit.arguments); !checked) return checked;
  return check_arguments(submit.arguments);
}

JobAccepted NodePoolState::on_submit(SubmitJob& submit) {
  JobAccepted answer;
  answer.refused = true;
  if (!trusts(submit)) {
    answer.error = why_distrusted(submit.seal);
    return answer;
  }
  if (auto checked = check_submission(submit); !checked) {
    answer.error = checked.error();
    sessions_->end(submit.seal.session);
    return answer;
  }
  std::vector<std::int32_t> slots;
  for (const Member& member : members_) slots.push_back(member.node.slots);
  const auto shares = lay_out(slots, submit.processes);
  auto port = config_.reserve_port();
  if (!shares || !port) {
    answer.error = !shares ? shares.error() : port.error();
    sessions_->end(submit.seal.session);
    return answer;
  }
  begin_job(submit, *shares);
  job_->port = *std::move(port);
  start_shares(submit.arguments);
  changed(fmt::format("job {} of {} begins", job_->id, job_->user));
  answer.refused = false;
  answer.job = job_->id;
  answer.nodes = static_cast<std::int32_t>(job_->shares.size());
  answer.processes = static_cast<std::int32_t>(job_->processes.size());
  answer.host = job_->shares.front().node.host;
  answer.directory = config_.directory;
  return answer;
}

void NodePoolState::begin_job(const SubmitJob& submit, const std::vector<NodeShare>& shares) {
  job_.emplace(config_.kill_grace);
  job_->id = ++jobs_;
  job_->user = shown(submit.user);
  job_->submitter = submit.submitter;
  job_->session = submit.seal.session;
  for (const NodeShare& share : shares)
    job_->shares.push_back({members_[share.node].node, share.first, share.count});
  job_->processes.resize(static_cast<std::size_t>(shares.back().first + shares.back().count));
  output_.emplace(config_.output_window, config_.output_backlog,
                  [this](const JobLine& line) { send_output(line); });
  self_->monitor(job_->submitter);
}

void NodePoolState::start_shares(const std::vector<std::string>& arguments) {
  std::string other_host;  // the first that is not on this machine, else any
  for (std::size_t i = 1; i < job_->shares.size(); ++i) {
    if (!other_host.empty() && !is_loopback_host(other_host)) break;
    if (std::string host = host_of(job_->shares[i].node.address);
        other_host.empty() || !is_loopback_host(host))
      other_host = std::move(host);
  }
  job_->nonce = random_hex(kJobNonceBytes);
  for (const PoolJob::Share& share : job_->shares) {
    StartRanks start;
    start.nonce = job_->nonce;
    start.job = job_->id;
    start.arguments = arguments;
    start.first = share.first;
    start.count = share.count;
    start.processes = static_cast<std::int32_t>(job_->processes.size());
    start.port = job_->port.number;
    start.other_host = other_host;
    send_sealed(share.node, std::move(start));
  }
}

// ---- a running job ----

PoolJob* NodePoolState::job_of(std::int64_t id) {
  return job_ && job_->id == id ? &*job_ : nullptr;
}

PoolJob::Process* NodePoolState::process_of(std::int64_t job, std::int32_t process) {
  PoolJob* const running = job_of(job);
  return running == nullptr ? nullptr : running->find(process);
}

void NodePoolState::say(std::int32_t process, bool to_err, std::string line) {
  output_->add({process, to_err, std::move(line)});
}

void NodePoolState::send_output(const JobLine& line) {
  split_line(line.text, [&](std::string part, bool continues) {
    JobOutput output{Seal{}, line.process, line.to_err, std::move(part), continues};
    if (auto sealed = sessions_->sealed(self_->system(), job_->session, std::move(output)))
      self_->send(job_->submitter, *std::move(sealed));
  });
}

// The session of an ended job is dropped: a late message is not a forgery.
void NodePoolState::on_written(const OutputWritten& written) {
  if (job_of(written.job) == nullptr || !trusts(written)) return;
  if (written.seal.session == job_->session) output_->acknowledge(written.lines);
}

ControlPlace NodePoolState::control_place() const {
  ControlPlace place;
  place.refused = true;
  if (!job_) {
    place.error = bad_input("the nodes run no job now");
  } else if (job_->control_port == 0) {
    place.error = {Errc::failed,
                   fmt::format("job {} of {} is starting: ask again", job_->id, job_->user)};
  } else {
    place.refused = false;
    place.job = job_->id;
    place.port = job_->control_port;
    place.nonce = job_->nonce;
  }
  return place;
}

// The session is for one question.
ControlPlace NodePoolState::on_ask_control(const AskControl& ask) {
  if (!trusts(ask)) {
    ControlPlace refused;
    refused.refused = true;
    refused.error = why_distrusted(ask.seal);
    return refused;
  }
  const ControlPlace place = control_place();
  const auto sealed = sessions_->sealed(self_->system(), ask.seal.session, place);
  sessions_->end(ask.seal.session);
  return sealed.value_or(place);
}

void NodePoolState::on_output(RankOutput& output) {
  if (!trusts(output)) return;
  PoolJob::Process* const process = process_of(output.job, output.process);
  if (process == nullptr) return;
  LineJoiner& parts = output.to_err ? process->err : process->out;
  if (auto line = parts.add(std::move(output.line), output.continues))
    on_line(*process, output.process, output.to_err, *std::move(line));
}

void NodePoolState::on_line(PoolJob::Process& process, std::int32_t number, bool to_err,
                            std::string line) {
  if (!to_err) return say(number, false, std::move(line));
  if (number == 0) job_->look_for_control(line);
  process.held.add(std::move(line), [&](std::string held) { say(number, true, std::move(held)); });
}

// A node died amid a line.
void NodePoolState::end_lines() {
  for (std::size_t i = 0; i < job_->processes.size(); ++i) {
    PoolJob::Process& process = job_->processes[i];
    for (const bool to_err : {false, true})
      if (auto line = (to_err ? process.err : process.out).take_rest())
        on_line(process, static_cast<std::int32_t>(i), to_err, *std::move(line));
  }
}

void NodePoolState::on_exited(const RankExited& exited) {
  if (!trusts(exited)) return;
  const PoolJob::Process* const process = process_of(exited.job, exited.process);
  if (process == nullptr || process->ended) return;
  job_->on_exited(exited);
  const PoolJob::Cause cause = job_->cause;
  const bool lost = cause == PoolJob::Cause::lost || cause == PoolJob::Cause::killed;
  if (cause != PoolJob::Cause::none) ask_to_end(lost ? grace_after_loss() : config_.grace);
  finish_where_all_ended();
}

void NodePoolState::signal_all(std::int32_t number) {
  for (const PoolJob::Share& share : job_->shares)
    send_sealed(share.node, SignalRanks{{}, job_->id, number});
}

// Process 0 has the model and the summary to write; once it has ended, the others need little time.
Duration NodePoolState::grace_after_loss() const {
  return job_->processes.front().ended ? config_.lost_grace : config_.grace;
}

void NodePoolState::ask_to_end(Duration grace) {
  if (!std::exchange(job_->ending, true)) signal_all(SIGTERM);
  if (job_->grace.begin(self_->clock().now().time_since_epoch(), grace)) look_again_after(grace);
}

void NodePoolState::look_again_after(Duration time) {
  self_->delayed_send(NodePoolActor{self_}, time, GraceOver{job_->id});
}

void NodePoolState::stop_job(const std::string& why) {
  say(-1, true, why);
  job_->stopping = job_->stopping || !job_->ending;
  ask_to_end(config_.grace);
}

void NodePoolState::on_grace_over(GraceOver over) {
  if (job_of(over.job) == nullptr) return;
  const GracePeriod::Due due = job_->grace.due(self_->clock().now().time_since_epoch());
  if (due == GracePeriod::Due::give_up) return give_up_stuck_nodes();
  if (due == GracePeriod::Due::nothing) return;
  say(-1, true, "some processes have not ended in time: killing them");
  kill_job();
}

void NodePoolState::kill_job() {
  signal_all(SIGKILL);
  if (job_->grace.killed()) return;
  job_->grace.kill(self_->clock().now().time_since_epoch());
  look_again_after(config_.kill_grace);
}

// A process is blocked in the kernel, or a node does not reap its processes.
void NodePoolState::give_up_stuck_nodes() {
  for (const PoolJob::Share& share : job_->shares) {
    if (!job_->abandon(share)) continue;
    const std::string who = name_of(share.node);
    job_->blame(PoolJob::Cause::node_died,
                {Errc::peer_down, who + " has not ended its processes after SIGKILL: check that "
                                        "node, then continue with --resume"},
                -1);
    send_sealed(share.node, PoolClosed{{}, true});
    const auto member = std::find_if(members_.begin(), members_.end(), [&](const Member& m) {
      return m.node.agent == share.node.agent;
    });
    if (member != members_.end())
      remove(static_cast<std::size_t>(member - members_.begin()), who + " has been dropped");
  }
  finish_where_all_ended();
}

void NodePoolState::on_signal(const SignalJob& signal) {
  if (!trusts(signal) || job_of(signal.job) == nullptr) return;
  if (signal.number == SIGUSR1) return signal_all(SIGUSR1);
  if (signal.number != SIGINT && signal.number != SIGTERM) return;
  if (signal.number == SIGINT && job_->interrupted) return kill_job();  // asked twice
  job_->interrupted = job_->interrupted || signal.number == SIGINT;
  job_->stopping = job_->stopping || !job_->ending;
  ask_to_end(config_.grace);
}

// ---- the end of a job ----

void NodePoolState::finish_where_all_ended() {
  if (!job_->all_ended()) return;
  end_lines();
  job_->conclude(
      [this](std::int32_t process, std::string error) { say(process, true, std::move(error)); });
  tell_end();
  const PoolJob::Cause cause = job_->cause;
  const std::string what =
      fmt::format("job {} of {} has {}{}", job_->id, job_->user,
                  cause <= PoolJob::Cause::stopped ? "ended" : "failed",
                  cause == PoolJob::Cause::none ? "" : ": " + job_->error.message);
  job_.reset();
  output_.reset();
  changed(what);
  for (std::size_t i = members_.size(); i-- > 0;) {
    if (!members_[i].leaving) continue;
    LeaveAnswer answer = *members_[i].leaving;
    remove(i, name_of(members_[i].node) + " has left");
    answer.deliver(Left{});
  }
  close_where_idle();
}

// The first node does not end before the submitter has received the end of its job.
void NodePoolState::tell_end() {
  output_->send_rest();
  self_->demonitor(job_->submitter.address());
  ++unacknowledged_ends_;
  const auto acknowledged = [this] {
    --unacknowledged_ends_;
    close_where_idle();
  };
  JobEnded ended;
  ended.failed = job_->cause != PoolJob::Cause::none;
  ended.error = {job_->error.code, cut_to(job_->error.message, kLongestErrorText)};
  const auto sealed = sessions_->sealed(self_->system(), job_->session, ended);
  sessions_->end(job_->session);
  self_->request(job_->submitter, config_.end_patience, sealed.value_or(ended))
      .then([acknowledged](const JobEndHeard&) { acknowledged(); },
            [acknowledged](const caf::error&) { acknowledged(); });
}

void NodePoolState::on_close() {
  if (std::exchange(closing_, true)) return;
  if (job_) stop_job("the first node is about to end: the job stops with a checkpoint");
  close_where_idle();
}

void NodePoolState::close_where_idle() {
  if (!closing_ || job_ || unacknowledged_ends_ > 0) return;
  for (const Member& member : members_) send_sealed(member.node, PoolClosed{{}, false});
  config_.on_closed();
}

NodePoolActor::behavior_type node_pool(NodePoolActor::stateful_pointer<NodePoolState> self,
                                       NodePoolConfig config) {
  NodePoolState& state = self->state;
  state.init(self, std::move(config));
  ignore_foreign_exits(self);
  self->set_down_handler([&state](const caf::down_msg& down) { state.on_down(down.source); });
  return {
      [&state](const Greet& greet) { return state.on_greet(greet); },
      [&state](const Enlist& enlist) { return state.on_enlist(enlist); },
      [&state](const LeavePool& leave) { return state.on_leave(leave); },
      [&state](RankOutput& output) { state.on_output(output); },
      [&state](const RankExited& exited) { state.on_exited(exited); },
      [&state](SubmitJob& submit) { return state.on_submit(submit); },
      [&state](const SignalJob& signal) { state.on_signal(signal); },
      [&state](const OutputWritten& written) { state.on_written(written); },
      [&state](const AskControl& ask) { return state.on_ask_control(ask); },
      [&state](GraceOver over) { state.on_grace_over(over); },
      [&state](ClosePool) { state.on_close(); },
  };
}

}  // namespace grapevine
