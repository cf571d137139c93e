#include "actors/cluster/node_pool.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "actors/clock_time.hpp"
#include "actors/cluster/node_agent.hpp"
#include "actors/unexpected_messages.hpp"
#include "messages/exit_code.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/cut_to.hpp"
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
  return one_line(std::move(text), kLongest, '?');
}

// Then the submitter does not know the places of the run.
bool resumes(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument.rfind("--resume=", 0) == 0;
  });
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

// "process 2", "processes 2, 3".
std::string processes_text(const std::vector<std::int32_t>& processes) {
  return fmt::format("{} {}", processes.size() == 1 ? "process" : "processes",
                     fmt::join(processes, ", "));
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
  status.processes = job_->running();
  status.user = job_->user;
  return status;
}

void NodePoolState::changed(const std::string& what) { config_.on_change(status(), what); }

Enlisted NodePoolState::on_enlist(const Enlist& enlist) {
  Enlisted answer;
  answer.refused = true;
  Member member{enlist, std::nullopt, job_ ? job_->id : 0};
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
    if (job_ && !own) use_new_node(members_.back());
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
  Member* const member = member_of(leave.agent);
  if (!trusts(leave) || member == nullptr) {
    answer.deliver(Left{});
    return answer;
  }
  std::vector<std::int32_t> lost;
  if (job_) lost = job_->running_on(leave.agent);
  const std::string who = name_of(member->node);
  if (lost.empty()) {
    remove(*member, who + " has left");
    answer.deliver(Left{});
    return answer;
  }
  if (continues_without(*member, lost)) {
    send_sealed(member->node, SignalRanks{{}, job_->id, SIGKILL});
    lose(lost, PoolJob::State::lost);
    remove(*member, who + " has left");
    answer.deliver(Left{});
    use_free_slots(lost, who + " has left the job");
    return answer;
  }
  member->leaving = answer;
  stop_job(who + " is about to leave: the job stops with a checkpoint");
  return answer;
}

void NodePoolState::remove(const Member& member, const std::string& what) {
  self_->demonitor(member.node.agent.address());
  sessions_->end(member.node.seal.session);
  members_.erase(members_.begin() + (&member - members_.data()));
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
  std::vector<std::int32_t> lost;
  if (job_) lost = job_->running_on(member->node.agent);
  const bool others_continue = job_ && may_lose_with(*member, lost);
  sessions_->end(member->node.seal.session);
  members_.erase(member);
  if (lost.empty()) return changed(who + " is gone");
  const std::string what = who + " died during the job";
  if (others_continue) {
    lose(lost, PoolJob::State::lost);
    changed(what);
    return use_free_slots(lost, what);
  }
  lose(lost, PoolJob::State::ended);
  changed(what);
  // The run has ended as process 0 has.
  const bool over = job_->continues && job_->head_ended();
  if (!over) job_->blame(PoolJob::Cause::node_died, {Errc::peer_down, what}, -1);
  ask_to_end(grace_after_loss());
  finish_where_all_ended();
}

void NodePoolState::lose(const std::vector<std::int32_t>& processes, PoolJob::State state) {
  for (const std::int32_t process : processes) {
    job_->find(process)->state = state;
    end_lines_of(process);
  }
}

// Whether the job may lose that node with these processes. A run that has not begun waits for all
// of them: other nodes have to take them.
bool NodePoolState::may_lose_with(const Member& node,
                                  const std::vector<std::int32_t>& processes) const {
  if (!job_->may_lose(processes)) return false;
  if (job_->begun) return true;
  std::int32_t free = 0;
  for (const Member& other : members_)
    if (&other != &node && !other.leaving) free += job_->free_slots(other.node);
  return free >= static_cast<std::int32_t>(processes.size());
}

// Whether the run continues, as far as the pool can know.
bool NodePoolState::continues_without(const Member& node,
                                      const std::vector<std::int32_t>& processes) const {
  const auto ends = static_cast<std::int32_t>(processes.size());
  const bool enough = !job_->begun || job_->running() - ends >= job_->least;
  return enough && may_lose_with(node, processes);
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
  submit.places = places_of(submit);
  std::vector<std::int32_t> slots;
  for (const Member& member : members_) slots.push_back(member.node.slots);
  const auto shares = lay_out(slots, processes_of(submit));
  auto port = config_.reserve_port();
  if (!shares || !port) {
    answer.error = !shares ? shares.error() : port.error();
    sessions_->end(submit.seal.session);
    return answer;
  }
  begin_job(submit, *shares);
  job_->port = *std::move(port);
  for (const NodeShare& share : *shares) start(share.first, share.count);
  changed(fmt::format("job {} of {} begins", job_->id, job_->user));
  answer.refused = false;
  answer.job = job_->id;
  answer.nodes = static_cast<std::int32_t>(shares->size());
  answer.processes = job_->running();
  answer.host = job_->processes.front().node->host;
  answer.directory = config_.directory;
  return answer;
}

// The submitter does not see the files of the run that it continues.
std::int32_t NodePoolState::places_of(const SubmitJob& submit) const {
  const bool known = submit.places > 0 || !resumes(submit.arguments) || !config_.places_of_run;
  return known ? submit.places : config_.places_of_run(submit.arguments);
}

// All slots, but no more than the job has places for.
std::int32_t NodePoolState::processes_of(const SubmitJob& submit) const {
  if (submit.processes > 0 || submit.places <= 0) return submit.processes;
  return std::min(submit.places, status().slots);
}

void NodePoolState::begin_job(const SubmitJob& submit, const std::vector<NodeShare>& shares) {
  job_.emplace(config_.kill_grace);
  job_->id = ++jobs_;
  job_->user = shown(submit.user);
  job_->submitter = submit.submitter;
  job_->session = submit.seal.session;
  const std::int32_t count = shares.back().first + shares.back().count;
  const std::int32_t places = submit.continues ? std::min(submit.places, kMaxSlots) : 0;
  job_->first_processes = count;
  job_->processes.resize(static_cast<std::size_t>(std::max(count, places)));
  for (const NodeShare& share : shares)
    for (std::int32_t i = 0; i < share.count; ++i)
      job_->place(share.first + i, members_[share.node].node, i, false);
  job_->arguments = submit.arguments;
  job_->continues = submit.continues;
  const bool may_grow = places > count || resumes(submit.arguments);
  job_->spreads = submit.continues && (may_grow || members_.size() > 1);
  job_->least = submit.least > 0 ? submit.least : count / 2 + 1;
  job_->restarts = job_->restarts_left = submit.continues ? std::max(submit.restarts, 0) : 0;
  job_->nonce = random_hex(kJobNonceBytes);
  output_.emplace(config_.output_window, config_.output_backlog,
                  [this](const JobLine& line) { send_output(line); });
  self_->monitor(job_->submitter);
}

// Of another member, on another machine where there is one; empty: there is none.
std::string NodePoolState::other_host() const {
  std::string host;
  for (std::size_t i = 1; i < members_.size(); ++i) {
    if (!host.empty() && !is_loopback_host(host)) break;
    if (std::string next = host_of(members_[i].node.address);
        host.empty() || !is_loopback_host(next))
      host = std::move(next);
  }
  return host;
}

// Processes of one node, in successive slots. A place that no process has had is that of a larger
// job for the process that takes it.
void NodePoolState::start(std::int32_t first, std::int32_t count) {
  const PoolJob::Process& process = *job_->find(first);
  const bool is_new = first >= job_->first_processes;
  StartRanks start;
  start.nonce = job_->nonce;
  start.job = job_->id;
  start.arguments = job_->arguments;
  start.first = first;
  start.count = count;
  start.processes =
      is_new ? static_cast<std::int32_t>(job_->processes.size()) : job_->first_processes;
  // A launcher's variables count no more local processes than the job has.
  start.here = std::min(job_->slots_in_use(*process.node), start.processes);
  start.slot = std::min(process.slot, start.here - count);
  start.port = job_->port.number;
  start.grows = job_->spreads;
  start.other_host = other_host();
  send_sealed(*process.node, std::move(start));
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
  if (number == 0 && job_->take_report(line)) return use_nodes_that_came();
  process.held.add(std::move(line), [&](std::string held) { say(number, true, std::move(held)); });
}

// A node died amid a line.
void NodePoolState::end_lines_of(std::int32_t number) {
  PoolJob::Process& process = *job_->find(number);
  for (const bool to_err : {false, true})
    if (auto line = (to_err ? process.err : process.out).take_rest())
      on_line(process, number, to_err, *std::move(line));
}

void NodePoolState::on_exited(const RankExited& exited) {
  if (!trusts(exited)) return;
  const PoolJob::Process* const process = process_of(exited.job, exited.process);
  if (process == nullptr || process->state != PoolJob::State::running) return;
  if (process->node->seal.session != exited.seal.session) return;  // of an earlier life, elsewhere
  if (job_->others_continue_after(exited)) {
    const bool lost_link = exited.signal == 0 && exited.exit_code == kExitLost;
    return lost_link ? wait_for_the_end(exited.process) : on_tolerated_exit(exited);
  }
  job_->on_exited(exited);
  if (exited.process == 0)
    self_->delayed_send(NodePoolActor{self_}, config_.joins_timeout, JoinsOver{job_->id});
  const PoolJob::Cause cause = job_->cause;
  const bool lost = cause == PoolJob::Cause::lost || cause == PoolJob::Cause::killed;
  if (cause != PoolJob::Cause::none) ask_to_end(lost ? grace_after_loss() : config_.grace);
  finish_where_all_ended();
}

// ---- processes that come while the others run ----

void NodePoolState::use_free_slots(const std::vector<std::int32_t>& lost, const std::string& why) {
  say(-1, true, fmt::format("{}, with {}: {}", why, processes_text(lost), job_->prospect()));
  for (const Member& member : members_) fill(member, lost);
  doubt(why);
}

// The end of a process after which the others continue. One that was killed, has lost a link, or
// has found its place taken, is started again where it ran.
void NodePoolState::on_tolerated_exit(const RankExited& exited) {
  PoolJob::Process& process = *job_->find(exited.process);
  lose({exited.process}, PoolJob::State::lost);
  const bool may_return = job_->may_return(exited);
  const std::string said = process.held.text();
  process.held.release([&](std::string line) { say(exited.process, true, std::move(line)); });
  const std::string ended = job_->end_of(exited);
  const Member* const member = member_of(process.node->agent);
  const bool has_node = member != nullptr && !member->leaving;
  if (!may_return || !has_node || job_->restarts_left == 0)
    return give_up_place(exited, ended, said);
  --job_->restarts_left;
  tell(fmt::format("{}: starting it again ({} of {}); {}", ended,
                   job_->restarts - job_->restarts_left, job_->restarts, job_->prospect()));
  place_later(exited.process, member->node, process.slot);
  start(exited.process, 1);
}

// The process lost its link. If the run itself has ended, the other processes end in this time,
// too.
void NodePoolState::wait_for_the_end(std::int32_t number) {
  PoolJob::Process& process = *job_->find(number);
  process.state = PoolJob::State::lost;
  process.lost_link = true;
  self_->delayed_send(NodePoolActor{self_}, config_.joins_timeout, LossOver{job_->id, number});
}

void NodePoolState::on_loss_over(LossOver over) {
  PoolJob::Process* const process = process_of(over.job, over.process);
  if (process == nullptr || !std::exchange(process->lost_link, false)) return;
  if (!job_->accepts_changes()) return;
  RankExited exited;
  exited.job = over.job;
  exited.process = over.process;
  exited.exit_code = kExitLost;
  on_tolerated_exit(exited);
}

// The place stays vacant until a node comes.
void NodePoolState::give_up_place(const RankExited& exited, const std::string& ended,
                                  const std::string& said) {
  if (job_->never_joined(exited)) return tell(ended + ": the others continue");
  if (!job_->find(exited.process)->joins && job_->failed_before.empty())
    job_->failed_before = said.empty() ? ended : job_->where(exited.process) + ": " + said;
  tell(ended + ": " + job_->prospect());
  doubt(exited.exit_code == kExitLost && !said.empty() ? said : ended);
}

// Process 0 ends a run that has too few ranks; one that does not answer is not waited for without
// end.
void NodePoolState::doubt(const std::string& why) {
  if (job_->running() >= job_->least || job_->short_since) return;
  job_->short_since = clock_time(self_->clock());
  job_->shortage = why;
  look_again_after(config_.grace);
}

bool NodePoolState::has_waited_for_the_head() {
  if (job_->running() >= job_->least) job_->short_since.reset();
  return job_->accepts_changes() && job_->short_since &&
         clock_time(self_->clock()) - *job_->short_since >= config_.grace;
}

// To the submitter, and in the log of this node.
void NodePoolState::tell(const std::string& what) {
  say(-1, true, what);
  changed(what);
}

// Prints the last lines of the former process of the place first: they are not lost with it.
void NodePoolState::place_later(std::int32_t process, const Enlist& node, std::int32_t slot) {
  job_->find(process)->held.release([&](std::string line) { say(process, true, std::move(line)); });
  job_->place(process, node, slot, true);
}

NodePoolState::Member* NodePoolState::member_of(const NodeAgentActor& agent) {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&](const Member& m) { return m.node.agent == agent; });
  return found == members_.end() ? nullptr : &*found;
}

// Free slots of a node take places that no process has.
void NodePoolState::fill(const Member& member, const std::vector<std::int32_t>& places) {
  if (member.leaving) return;
  std::vector<std::int32_t> taken;  // before the first one starts: each learns how many are there
  for (const std::int32_t place : places) {
    const PoolJob::State state = job_->find(place)->state;
    if (state == PoolJob::State::running || state == PoolJob::State::ended) continue;
    const auto slot = job_->free_slot(member.node);
    if (!slot) break;
    place_later(place, member.node, *slot);
    taken.push_back(place);
  }
  for (const std::int32_t place : taken) {
    start(place, 1);
    tell(fmt::format("starting process {} on {}", place, name_of(member.node)));
  }
}

// It takes the places of lost processes, then those of drained ones, then those that none has had.
void NodePoolState::use_new_node(const Member& member) {
  using State = PoolJob::State;
  if (!job_->accepts_changes()) return;
  std::vector<std::int32_t> places;
  for (const State state : {State::lost, State::left, State::vacant})
    for (const std::int32_t place : job_->places_in(state)) places.push_back(place);
  fill(member, places);
}

// Since the job was submitted: only now all of its places are known.
void NodePoolState::use_nodes_that_came() {
  for (const Member& member : members_)
    if (member.during_job == job_->id && job_->accepts_changes())
      fill(member, job_->places_in(PoolJob::State::vacant));
}

// The others end by themselves, unless they are frozen.
void NodePoolState::on_joins_over(JoinsOver over) {
  if (job_of(over.job) == nullptr) return;
  for (std::size_t i = 0; i < job_->processes.size(); ++i) {
    const PoolJob::Process& process = job_->processes[i];
    if (process.state != PoolJob::State::running || !process.joins) continue;
    send_sealed(*process.node, SignalRanks{{}, job_->id, SIGTERM, static_cast<std::int32_t>(i)});
  }
  begin_grace(config_.grace);
}

// ---- its end ----

void NodePoolState::signal_all(std::int32_t number) {
  for (const Enlist& node : job_->nodes()) send_sealed(node, SignalRanks{{}, job_->id, number});
}

// Process 0 has the model and the summary to write; once it has ended, the others need little time.
Duration NodePoolState::grace_after_loss() const {
  return job_->head_ended() ? config_.lost_grace : config_.grace;
}

void NodePoolState::ask_to_end(Duration grace) {
  if (!std::exchange(job_->ending, true)) signal_all(SIGTERM);
  begin_grace(grace);
}

void NodePoolState::begin_grace(Duration grace) {
  if (job_->grace.begin(clock_time(self_->clock()), grace)) look_again_after(grace);
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
  if (has_waited_for_the_head()) {
    job_->blame(PoolJob::Cause::lost, {Errc::peer_down, job_->shortage}, -1);
    job_->ending = true;
    return kill_job();
  }
  const GracePeriod::Due due = job_->grace.due(clock_time(self_->clock()));
  if (due == GracePeriod::Due::give_up) return give_up_stuck_nodes();
  if (due == GracePeriod::Due::nothing) return;
  say(-1, true, "some processes have not ended in time: killing them");
  kill_job();
}

void NodePoolState::kill_job() {
  signal_all(SIGKILL);
  if (job_->grace.killed()) return;
  job_->grace.kill(clock_time(self_->clock()));
  look_again_after(config_.kill_grace);
}

// A process is blocked in the kernel, or a node does not reap its processes.
void NodePoolState::give_up_stuck_nodes() {
  for (const Enlist& node : job_->nodes()) {
    for (const std::int32_t process : job_->running_on(node.agent))
      job_->find(process)->state = PoolJob::State::ended;
    const std::string who = name_of(node);
    job_->blame(PoolJob::Cause::node_died,
                {Errc::peer_down, who + " has not ended its processes after SIGKILL: check that "
                                        "node, then continue with --resume"},
                -1);
    send_sealed(node, PoolClosed{{}, true});
    if (const Member* const member = member_of(node.agent); member != nullptr)
      remove(*member, who + " has been dropped");
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
  for (std::size_t i = 0; i < job_->processes.size(); ++i)
    end_lines_of(static_cast<std::int32_t>(i));
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
    remove(members_[i], name_of(members_[i].node) + " has left");
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
  self_->request(job_->submitter, config_.end_timeout, sealed.value_or(ended))
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
  ignore_unexpected_messages(*self);
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
      [&state](JoinsOver over) { state.on_joins_over(over); },
      [&state](LossOver over) { state.on_loss_over(over); },
      [&state](ClosePool) { state.on_close(); },
  };
}

}  // namespace grapevine
