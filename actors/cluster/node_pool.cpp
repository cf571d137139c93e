#include "actors/cluster/node_pool.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <numeric>

#include "actors/cluster/node_agent.hpp"
#include "actors/record/resume_hint.hpp"
#include "messages/exit_code.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tcp_dial.hpp"

namespace grapevine {
namespace {

constexpr char kRequeue[] = "--requeue-command";

constexpr std::size_t kJobNonceBytes = 32;
// A caller continues its session at once; sessions without a message are dropped, oldest first.
constexpr std::size_t kMaxGreeted = 1024;

Error no_seal() {
  return bad_input("the message does not prove that its sender knows the secret of this pool");
}

// The session was dropped because too many others have greeted since.
Error no_session() {
  return {Errc::peer_down, "the session of the sender is unknown: start again"};
}

Error other_version(const std::string& who, const std::string& theirs, const std::string& ours) {
  return bad_input(who + " runs version " + theirs + ", the first node version " + ours +
                   ": install the same everywhere");
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
      return bad_input(std::string(kRequeue) + " is not for jobs of nodes: leave it out");
    if (argument.rfind("--", 0) != 0)
      return bad_input("'" + shown(argument) + "' is no option: a job of nodes has no job file");
    if (argument == "--set") ++i;  // its value
  }
  return {};
}

std::string host_of(const std::string& address) {
  auto parts = tcp::split_address(address);
  return parts ? std::move(parts->first) : "";
}

}  // namespace

std::string counted(std::int64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

Expected<std::vector<NodeShare>> lay_out(const std::vector<std::int32_t>& slots,
                                         std::int32_t processes) {
  const std::int64_t all = std::accumulate(slots.begin(), slots.end(), std::int64_t{0});
  if (processes < 0 || processes > all)
    return bad_input("--processes " + std::to_string(processes) + ": the nodes have " +
                     counted(all, "slot") + ": ask for fewer or start more nodes");
  const auto wanted = processes == 0 ? static_cast<std::int32_t>(all) : processes;
  std::vector<NodeShare> shares;
  std::int32_t placed = 0;
  for (std::size_t node = 0; node < slots.size() && placed < wanted; ++node) {
    const std::int32_t count = std::min(slots[node], wanted - placed);
    if (count > 0) shares.push_back({node, placed, count});
    placed += count;
  }
  return shares;
}

void NodePoolState::init(NodePoolActor::stateful_pointer<NodePoolState> self,
                         NodePoolConfig config) {
  self_ = self;
  config_ = std::move(config);
}

Greeting NodePoolState::on_greet(const Greet& greet) {
  if (greeted_.size() >= kMaxGreeted) forget_oldest_greeting();
  Greeting greeting = answer_greeting(config_.secret, greet, ++last_session_);
  sessions_[greeting.session] = pool_session(config_.secret, greet, greeting);
  greeted_.push_back(greeting.session);
  return greeting;
}

void NodePoolState::forget_oldest_greeting() {
  sessions_.erase(greeted_.front());
  greeted_.pop_front();
}

template <class Message>
bool NodePoolState::trusts(const Message& message) {
  const auto session = sessions_.find(message.seal.session);
  if (session != sessions_.end() && session->second.from.opens(self_->system(), message)) {
    greeted_.erase(std::remove(greeted_.begin(), greeted_.end(), session->first), greeted_.end());
    return true;
  }
  if (const auto more = distrusted_.admit())
    spdlog::warn("a message without the proof of this pool's secret was ignored{}", *more);
  return false;
}

bool NodePoolState::is_forgotten(const Seal& seal) const {
  return seal.session > 0 && seal.session <= last_session_ && sessions_.count(seal.session) == 0;
}

template <class Message>
void NodePoolState::send_sealed(const Enlist& node, Message message) {
  const auto session = sessions_.find(node.seal.session);
  if (session == sessions_.end()) return;
  self_->send(node.agent, session->second.to.sealed(self_->system(), std::move(message)));
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
  const std::string who = "node " + shown(enlist.address) + " (" + shown(enlist.host) + ")";
  const bool trusted = trusts(enlist);
  if (!trusted) {
    answer.error = is_forgotten(enlist.seal) ? no_session() : no_seal();
  } else if (enlist.version != config_.version) {
    answer.error = other_version(who, shown(enlist.version), config_.version);
  } else if (enlist.slots < 1 || status().slots > kMaxSlots - enlist.slots) {
    answer.error = bad_input(who + " offers " + counted(enlist.slots, "slot") +
                             ": expected at least 1, and at most " + std::to_string(kMaxSlots) +
                             " of all nodes together");
  } else if (closing_ || !enlist.agent) {
    answer.error = Error{Errc::peer_down, "the first node is about to end: start it again"};
  } else {
    answer.refused = false;
    Member member{enlist, std::nullopt};
    member.node.host = shown(enlist.host);
    member.node.address = shown(enlist.address);
    // Process 0 runs on the first member, and other nodes may enlist before the first node's own.
    const bool own = enlist.agent.node() == self_->node() && !has_own_node();
    members_.insert(own ? members_.begin() : members_.end(), std::move(member));
    self_->monitor(enlist.agent);
    changed(who + " has joined");
  }
  if (trusted && answer.refused) sessions_.erase(enlist.seal.session);
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
  const std::string who = "node " + member->node.address + " (" + member->node.host + ")";
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
  sessions_.erase(members_[member].node.seal.session);
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
  const std::string who = "node " + member->node.address + " (" + member->node.host + ")";
  sessions_.erase(member->node.seal.session);
  members_.erase(member);
  bool took_part = false;
  if (job_)
    for (const Share& share : job_->shares) {
      if (share.node.agent.address() != source) continue;
      took_part = true;
      for (std::int32_t process = share.first; process < share.first + share.count; ++process)
        job_->processes[static_cast<std::size_t>(process)].ended = true;
    }
  changed(who + (took_part ? " died during the job" : " is gone"));
  if (!took_part) return;
  blame(Cause::node_died, {Errc::peer_down, who + " died during the job"}, -1);
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
    return Error{Errc::failed, "the nodes are busy with job " + std::to_string(job_->id) + " of " +
                                   job_->user + ": try again when it has ended"};
  if (!submit.submitter) return bad_input("the request names no submitter");
  return check_arguments(submit.arguments);
}

JobAccepted NodePoolState::on_submit(SubmitJob& submit) {
  JobAccepted answer;
  answer.refused = true;
  if (!trusts(submit)) {
    answer.error = is_forgotten(submit.seal) ? no_session() : no_seal();
    return answer;
  }
  if (auto checked = check_submission(submit); !checked) {
    answer.error = checked.error();
    sessions_.erase(submit.seal.session);
    return answer;
  }
  std::vector<std::int32_t> slots;
  for (const Member& member : members_) slots.push_back(member.node.slots);
  const auto shares = lay_out(slots, submit.processes);
  const auto port = config_.free_port();
  if (!shares || !port) {
    answer.error = !shares ? shares.error() : port.error();
    sessions_.erase(submit.seal.session);
    return answer;
  }
  Job job(config_.kill_grace);
  job.id = ++jobs_;
  job.user = shown(submit.user);
  job.submitter = submit.submitter;
  job.session = submit.seal.session;
  for (const NodeShare& share : *shares)
    job.shares.push_back({members_[share.node].node, share.first, share.count});
  const std::int32_t processes = shares->back().first + shares->back().count;
  job.processes.resize(static_cast<std::size_t>(processes));
  job_ = std::move(job);
  output_.emplace(config_.output_window, config_.output_backlog,
                  [this](JobLine line) { send_output(std::move(line)); });
  self_->monitor(job_->submitter);
  start_shares(submit.arguments, *port);
  changed("job " + std::to_string(job_->id) + " of " + job_->user + " begins");
  answer.refused = false;
  answer.job = job_->id;
  answer.nodes = static_cast<std::int32_t>(job_->shares.size());
  answer.processes = static_cast<std::int32_t>(job_->processes.size());
  answer.host = job_->shares.front().node.host;
  answer.directory = config_.directory;
  return answer;
}

void NodePoolState::start_shares(const std::vector<std::string>& arguments, std::uint16_t port) {
  std::string other_host;  // the first that is not on this machine, else any
  for (std::size_t i = 1; i < job_->shares.size(); ++i) {
    if (!other_host.empty() && !is_loopback_host(other_host)) break;
    if (std::string host = host_of(job_->shares[i].node.address);
        other_host.empty() || !is_loopback_host(host))
      other_host = std::move(host);
  }
  const std::string nonce = random_hex(kJobNonceBytes);
  for (const Share& share : job_->shares) {
    StartRanks start;
    start.nonce = nonce;
    start.job = job_->id;
    start.arguments = arguments;
    start.first = share.first;
    start.count = share.count;
    start.processes = static_cast<std::int32_t>(job_->processes.size());
    start.port = port;
    start.other_host = other_host;
    send_sealed(share.node, std::move(start));
  }
}

// ---- a running job ----

NodePoolState::Process* NodePoolState::process_of(std::int64_t job, std::int32_t process) {
  Job* running = job_of(job);
  const bool known = running != nullptr && process >= 0 &&
                     process < static_cast<std::int32_t>(running->processes.size());
  return known ? &running->processes[static_cast<std::size_t>(process)] : nullptr;
}

std::string NodePoolState::where(std::int32_t process) const {
  for (const Share& share : job_->shares)
    if (process >= share.first && process < share.first + share.count)
      return "rank " + std::to_string(process) + " on node " + share.node.address;
  return "rank " + std::to_string(process);
}

void NodePoolState::say(std::int32_t process, bool to_err, std::string line) {
  output_->add({process, to_err, std::move(line)});
}

void NodePoolState::send_output(JobLine line) {
  const auto session = sessions_.find(job_->session);
  if (session == sessions_.end()) return;
  JobOutput output{Seal{}, line.process, line.to_err, std::move(line.text)};
  self_->send(job_->submitter, session->second.to.sealed(self_->system(), std::move(output)));
}

// The session of an ended job is dropped: a late message is not a forgery.
void NodePoolState::on_written(const OutputWritten& written) {
  if (job_of(written.job) == nullptr || !trusts(written)) return;
  if (written.seal.session == job_->session) output_->acknowledge(written.lines);
}

void NodePoolState::on_output(RankOutput& output) {
  if (!trusts(output)) return;
  Process* process = process_of(output.job, output.process);
  if (process == nullptr) return;
  if (output.to_err)
    process->held.add(std::move(output.line), error_writer(output.process));
  else
    say(output.process, false, std::move(output.line));
}

HeldError::Write NodePoolState::error_writer(std::int32_t process) {
  return [this, process](std::string line) { say(process, true, std::move(line)); };
}

void NodePoolState::blame(Cause cause, Error error, std::int32_t process) {
  if (static_cast<int>(cause) <= static_cast<int>(job_->cause)) return;
  job_->cause = cause;
  job_->error = std::move(error);
  job_->blamed = process;
}

void NodePoolState::on_exited(const RankExited& exited) {
  if (!trusts(exited)) return;
  Process* process = process_of(exited.job, exited.process);
  if (process == nullptr || process->ended) return;
  process->ended = true;
  const std::string who = where(exited.process);
  const std::string said = process->held.text();
  // A process that was asked to end before it handled signals ends by the signal.
  const bool asked = job_->ending && (exited.signal == SIGTERM || exited.signal == SIGKILL);
  if (const std::string hint = resume_hint_in(said); !hint.empty()) job_->hint = hint;
  if (!exited.error.empty()) {
    blame(Cause::killed, {Errc::io, who + " could not be started: " + exited.error}, -1);
  } else if (exited.signal != 0 && asked) {
    if (job_->stopping)
      blame(Cause::exited, {Errc::failed, who + " was stopped before it could end by itself"}, -1);
  } else if (exited.signal != 0) {
    blame(Cause::killed, {Errc::peer_down, end_text(who, {-1, exited.signal})}, -1);
  } else if (exited.exit_code != 0) {
    blame_exit(exited, who, said);
  }
  const bool lost = job_->cause == Cause::lost || job_->cause == Cause::killed;
  if (job_->cause != Cause::none) ask_to_end(lost ? grace_after_loss() : config_.grace);
  finish_where_all_ended();
}

// The error of a process that lost another one, or was stopped, concerns the whole job; the error
// of a failed process, that process.
void NodePoolState::blame_exit(const RankExited& exited, const std::string& who,
                               const std::string& said) {
  const std::string code = end_text(who, {exited.exit_code, 0});
  switch (exited.exit_code) {
    case kExitLost:
      return blame(Cause::lost, {Errc::peer_down, said.empty() ? code : said}, exited.process);
    case kExitStopped:
      return blame(Cause::stopped, {Errc::stopped, said.empty() ? code : said}, exited.process);
    case kExitBadInput:
      return blame(Cause::bad_input, {Errc::bad_input, said.empty() ? code : who + ": " + said},
                   exited.process);
    default:
      if (job_->ending && job_->cause == Cause::lost) return;  // it was asked to end
      blame(Cause::exited, {Errc::failed, said.empty() ? code : who + ": " + said}, exited.process);
  }
}

void NodePoolState::signal_all(std::int32_t number) {
  for (const Share& share : job_->shares)
    send_sealed(share.node, SignalRanks{{}, job_->id, number});
}

// Process 0 has the model and the summary to write; once it has ended, the others need little time.
Duration NodePoolState::grace_after_loss() const {
  return job_->processes.front().ended ? config_.lost_grace : config_.grace;
}

void NodePoolState::ask_to_end(Duration grace) {
  if (!std::exchange(job_->ending, true)) signal_all(SIGTERM);
  if (job_->grace.begin(self_->clock().now(), grace)) look_again_after(grace);
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
  const GracePeriod::Due due = job_->grace.due(self_->clock().now());
  if (due == GracePeriod::Due::give_up) return give_up_stuck_nodes();
  if (due == GracePeriod::Due::nothing) return;
  say(-1, true, "some processes have not ended in time: killing them");
  kill_job();
}

void NodePoolState::kill_job() {
  signal_all(SIGKILL);
  if (job_->grace.killed()) return;
  job_->grace.kill(self_->clock().now());
  look_again_after(config_.kill_grace);
}

// A process is blocked in the kernel, or a node does not reap its processes.
void NodePoolState::give_up_stuck_nodes() {
  for (const Share& share : job_->shares) {
    bool stuck = false;
    for (std::int32_t i = share.first; i < share.first + share.count; ++i)
      stuck = !std::exchange(job_->processes[static_cast<std::size_t>(i)].ended, true) || stuck;
    if (!stuck) continue;
    const std::string who = "node " + share.node.address + " (" + share.node.host + ")";
    blame(Cause::node_died,
          {Errc::peer_down, who + " has not ended its processes after SIGKILL: check that node, "
                                  "then continue with --resume"},
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
  const auto& processes = job_->processes;
  if (!std::all_of(processes.begin(), processes.end(), [](const Process& p) { return p.ended; }))
    return;
  conclude();
  tell_end();
  std::string what = "job " + std::to_string(job_->id) + " of " + job_->user;
  what += job_->cause <= Cause::stopped ? " has ended" : " has failed";
  if (job_->cause != Cause::none) what += ": " + job_->error.message;
  job_.reset();
  output_.reset();
  changed(what);
  for (std::size_t i = members_.size(); i-- > 0;) {
    if (!members_[i].leaving) continue;
    LeaveAnswer answer = *members_[i].leaving;
    remove(i, "node " + members_[i].node.address + " (" + members_[i].node.host + ") has left");
    answer.deliver(Left{});
  }
  close_where_idle();
}

// The final error of a job, and the remaining error lines of its processes.
void NodePoolState::conclude() {
  auto& processes = job_->processes;
  const HeldError quoted =
      job_->blamed < 0 ? HeldError() : processes[static_cast<std::size_t>(job_->blamed)].held;
  const auto same = std::count_if(processes.begin(), processes.end(),
                                  [&](const Process& p) { return p.held.line() == quoted.line(); });
  // An error that several processes report is one of the job, not of the first process.
  if (!quoted.line().empty() && same > 1) job_->error.message = quoted.text();
  for (std::size_t i = 0; i < processes.size(); ++i) {
    HeldError& held = processes[i].held;
    // The line of a process that was stopped before it trained is not an error of its own.
    const bool quiet = held.text() == kStoppedBeforeTraining;
    if (!quiet && held.line() != quoted.line())
      held.release(error_writer(static_cast<std::int32_t>(i)));
  }
  std::string& message = job_->error.message;
  if (job_->error.code != Errc::peer_down || !resume_hint_in(message).empty()) return;
  message += job_->cause == Cause::node_died && job_->hint.empty()
                 ? "; resume with --resume when it is back"
                 : job_->hint;
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
  SealedSession session = std::move(sessions_[job_->session]);
  sessions_.erase(job_->session);
  JobEnded ended;
  ended.failed = job_->cause != Cause::none;
  ended.error = job_->error;
  self_
      ->request(job_->submitter, config_.end_patience,
                session.to.sealed(self_->system(), std::move(ended)))
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
      [&state](GraceOver over) { state.on_grace_over(over); },
      [&state](ClosePool) { state.on_close(); },
  };
}

NodePoolActor::behavior_type node_redirector(NodePoolActor::pointer self, std::string first) {
  ignore_foreign_exits(self);
  const Error error =
      bad_input("that node belongs to the nodes of " + first + ": give that address");
  return {
      [error](const Greet&) {
        Greeting greeting;
        greeting.refused = true;
        greeting.error = error;
        return greeting;
      },
      [error](const Enlist&) {
        Enlisted answer;
        answer.refused = true;
        answer.error = error;
        return answer;
      },
      [](const LeavePool&) { return Left{}; },
      [](const RankOutput&) {},
      [](const RankExited&) {},
      [error](const SubmitJob&) {
        JobAccepted answer;
        answer.refused = true;
        answer.error = error;
        return answer;
      },
      [](const SignalJob&) {},
      [](const OutputWritten&) {},
      [](GraceOver) {},
      [](ClosePool) {},
  };
}

}  // namespace grapevine
