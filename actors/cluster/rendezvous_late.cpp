// Once the run has begun: processes that ask for its job, and processes that take the place of a
// lost one.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <set>

#include "actors/clock_time.hpp"
#include "actors/cluster/join/join_proof.hpp"
#include "actors/cluster/rendezvous_host.hpp"
#include "actors/run/validate.hpp"
#include "messages/exit_code.hpp"
#include "messages/text/control_characters.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kMostJobText = std::size_t{48} << 10;
constexpr Duration kPlaceInterval = std::chrono::milliseconds(100);
constexpr Duration kReturnInterval = std::chrono::seconds(1);
constexpr Duration kStoodStill = std::chrono::seconds(1);
constexpr Duration kPlaceTimeout = std::chrono::seconds(10);  // of an answer in this process
// After which the supervisor knows that a process whose agent is gone has ended. This and
// answer_timeout are less than the 10 s for which a process waits longer than the rendezvous.
constexpr Duration kLossBecomesKnown = std::chrono::seconds(4);

}  // namespace

// ---- the question for the job ----

Expected<void> RendezvousState::check_asker(const AskJob& ask) const {
  if (auto sane = check(ask); !sane) return sane;
  const std::string where = "the job at " + config_.where;
  if (!config_.secret.empty() &&
      !equal_secrets(ask.proof, proof_of_question(config_.secret, ask.nonce, ask.challenge)))
    return bad_input("this process does not know the secret of " + where +
                     ": set GRAPEVINE_JOB_TOKEN to that of the job");
  if (config_.secret.empty() && !ask.proof.empty())
    return bad_input(where + " has no secret, this process has one: unset GRAPEVINE_JOB_TOKEN");
  if (ask.version != config_.version)
    return bad_input(
        fmt::format("this process runs version {}, process 0 version {}: install the "
                    "same everywhere",
                    one_line(ask.version), config_.version));
  return {};
}

// Those that the process was given by itself: the others come from this job.
Expected<void> RendezvousState::check_options(const AskJob& ask,
                                              const ChangedSettings& settings) const {
  for (const auto& [key, value] : ask.options)
    if (auto same = check_option("this process", key, value, settings); !same) return same;
  return {};
}

Expected<void> RendezvousState::check_offered(const Vacancy& vacancy) const {
  if (vacancy.processes.empty()) return bad_input("this process " + vacancy.reason);
  if (config_.job_text.size() <= kMostJobText) return {};
  return bad_input(fmt::format(
      "the job of {} bytes is too long to be sent, the most are {}: start this process with the "
      "options and the launcher's variables of the lost one",
      config_.job_text.size(), kMostJobText));
}

// A process needs seconds from its offer to its Join. Others that ask meanwhile are offered other
// places, as long as there are any, and then the one that was offered first: the process that was
// to take it may have ended.
std::int32_t RendezvousState::choose_place(const std::vector<std::int32_t>& lost) {
  const auto offer_of = [this](std::int32_t process) {
    const auto found = offered_.find(process);
    return found == offered_.end() ? std::int64_t{0} : found->second;
  };
  const std::int32_t chosen =
      *std::min_element(lost.begin(), lost.end(),
                        [&](std::int32_t a, std::int32_t b) { return offer_of(a) < offer_of(b); });
  offered_[chosen] = ++offers_;
  return chosen;
}

// A process has joined for that place, and waits for it.
bool RendezvousState::is_awaited(std::int32_t process) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [process](const auto& waiting) {
    return waiting.second.participant.join.process == process;
  });
}

// The places that can be offered.
Vacancy RendezvousState::without_awaited(Vacancy vacancy) const {
  std::vector<std::int32_t>& places = vacancy.processes;
  if (places.empty()) return vacancy;
  const auto awaited = [this](std::int32_t process) { return is_awaited(process); };
  places.erase(std::remove_if(places.begin(), places.end(), awaited), places.end());
  vacancy.later = places.empty();
  if (vacancy.later)
    vacancy.reason = "finds no place: other processes wait for those that are free";
  return vacancy;
}

void RendezvousState::fill_offer(JobOffer& offer, const AskJob& ask, const Vacancy& vacancy) {
  const bool may_join = !vacancy.processes.empty() || vacancy.later;
  const auto same =
      may_join ? check_options(ask, {vacancy.settings, vacancy.earlier}) : Expected<void>();
  if (!same) ignore("refused: " + same.error().message);
  offer.later = same && vacancy.later;
  if (const auto offered = same ? check_offered(vacancy) : same; !offered) {
    offer.error = offered.error();
    return;
  }
  offer.refused = false;
  offer.process = choose_place(vacancy.processes);
  offer.processes = config_.processes;
  offer.job = config_.job;
  offer.transport = config_.transport;
  offer.text = config_.job_text;
}

// With the proof of its content.
JobOffer RendezvousState::proven(JobOffer offer, const AskJob& ask) const {
  if (!config_.secret.empty()) offer.proof = proof_of_offer(config_.secret, ask.nonce, offer);
  return offer;
}

caf::result<JobOffer> RendezvousState::on_ask_job(const AskJob& ask) {
  auto answer = self_->make_response_promise<JobOffer>();
  JobOffer offer;
  offer.refused = true;
  const auto known = check_asker(ask);
  const auto checked = known ? use_challenge("this process", ask.challenge) : known;
  if (!checked) {
    offer.later = known.ok();  // with another challenge
    offer.error = checked.error();
    ignore("refused: " + offer.error.message);
    answer.deliver(std::move(offer));
    return answer;
  }
  if (!begun_) {
    const auto same = check_options(ask, {});
    if (!same) ignore("refused: " + same.error().message);
    offer.later = same.ok();
    offer.error =
        same ? bad_input("the job at " + config_.where + " has not begun: start its processes")
             : same.error();
    answer.deliver(proven(std::move(offer), ask));
    return answer;
  }
  self_->request(config_.supervisor, kPlaceTimeout, AskVacancy{})
      .then(
          [this, answer, offer, ask](const Vacancy& vacancy) mutable {
            fill_offer(offer, ask, without_awaited(vacancy));
            answer.deliver(proven(std::move(offer), ask));
          },
          [this, answer, offer, ask](const caf::error&) mutable {
            offer.error = Error{Errc::timeout, "process 0 does not answer"};
            answer.deliver(proven(std::move(offer), ask));
          });
  return answer;
}

// ---- a place in it ----

void RendezvousState::on_late_join(Participant late) {
  if (!late.join.agent)
    return refuse(late.answer, bad_input(name_of(late.join) +
                                         " joined a run that has begun: is it started twice?"));
  offered_[late.join.process] = ++offers_;
  wait_for_place({std::move(late), clock_time(self_->clock()) + config_.timeout});
}

void RendezvousState::wait_for_place(Waiting waiting) {
  const std::string nonce = waiting.participant.join.nonce;
  self_->monitor(waiting.participant.join.agent);
  waiting_[nonce] = std::move(waiting);
  ask_for_place(nonce);
}

void RendezvousState::ask_for_place(const std::string& nonce) {
  const auto returning = std::find_if(
      returning_.begin(), returning_.end(),
      [&](std::int32_t process) { return participants_.at(process).join.nonce == nonce; });
  if (returning != returning_.end()) return ask_returning(*returning);
  const auto waiting = waiting_.find(nonce);
  if (waiting == waiting_.end()) return;
  const Join& join = waiting->second.participant.join;
  const std::int32_t process = join.process;
  // Another one has the place, and has not begun: the supervisor knows its number alone.
  if (returning_.count(process) > 0)
    return on_place(nonce, process, {false, true, "has to wait for another change", {}});
  self_
      ->request(config_.supervisor, kPlaceTimeout,
                AskPlace{process, -1, join.agent, join.host, join.address})
      .then([this, nonce, process](const Place& place) { on_place(nonce, process, place); },
            [this, nonce, process](const caf::error&) {
              on_place(nonce, process, {false, true, "got no answer from the supervisor", {}});
            });
}

// A place that is not free yet, e.g. because the loss is not known here, may become so. A process
// with other options need not wait for it: the first answer of the supervisor refuses it.
void RendezvousState::on_place(const std::string& nonce, std::int32_t process, const Place& place) {
  const auto waiting = waiting_.find(nonce);
  if (waiting == waiting_.end()) return;  // it has gone meanwhile, and its place was given back
  const bool late = clock_time(self_->clock()) >= waiting->second.until;
  const bool compares = place.granted || (place.later && place.settings);
  const auto same = compares
                        ? check_identity(waiting->second.participant.join,
                                         {place.settings.value_or(LiveSettings()), place.earlier})
                        : Expected<void>();
  if (same && !place.granted && place.later && !late) {
    self_->delayed_send(RendezvousActor{self_}, kPlaceInterval, AskPlaceAgain{nonce});
    return give_up_silent_returns();
  }
  Waiting waited = std::move(waiting->second);
  waiting_.erase(waiting);
  if (same && place.granted) return admit_late(std::move(waited.participant), place);
  give_place_back(process);
  if (!same) return refuse(waited.participant.answer, same.error());
  refuse_without_place(std::move(waited), place);
}

// The supervisor may have granted it, with an answer that came too late: until it hears of the end
// of that return, it grants no other place. What it has not granted, it ignores. Others that wait
// for the same place take it, or give it back.
void RendezvousState::give_place_back(std::int32_t process) {
  const bool in_use = returning_.count(process) > 0 || is_awaited(process);
  if (!in_use) self_->send(config_.supervisor, ProcessReturned{process, -1, {}, {}});
}

// Where another process has the place, the reason tells a process that has ended, and one that is
// only silent, from one that trains.
void RendezvousState::refuse_without_place(Waiting waited, const Place& place) {
  const Join& late = waited.participant.join;
  const auto holder = participants_.find(late.process);
  const bool taken = place.reason == kPlaceTaken && holder != participants_.end() &&
                     static_cast<bool>(holder->second.join.agent);
  if (taken && !waited.again) return ask_holder(std::move(waited.participant), holder->second.join);
  if (!taken)
    return refuse(waited.participant.answer, bad_input(name_of(late) + " " + place.reason));
  const std::string who =
      name_of(late) + " finds its place taken: the one on " + holder->second.join.host;
  refuse(waited.participant.answer,
         {Errc::peer_down, who + " has ended, and does not count as lost yet: start it again"});
}

void RendezvousState::ask_holder(Participant late, const Join& holder) {
  const std::string host = holder.host;
  const auto waiting = std::make_shared<Participant>(std::move(late));
  self_->request(holder.agent, config_.answer_timeout, Ping{})
      .then(
          [this, waiting, host](Pong) {
            refuse(waiting->answer,
                   bad_input(fmt::format("{} {} The one on {} has the place and answers",
                                         name_of(waiting->join), kPlaceTaken, host)));
          },
          [this, waiting, host](const caf::error& error) {
            on_holder_without_answer(std::move(*waiting), host, life_after(error));
          });
}

// `host`: of the process that has the place. If it has ended, the supervisor knows so in a moment.
void RendezvousState::on_holder_without_answer(Participant late, const std::string& host,
                                               Life life) {
  if (life == Life::ended)
    return wait_for_place({std::move(late), clock_time(self_->clock()) + kLossBecomesKnown, true});
  refuse(late.answer,
         bad_input(fmt::format("{} finds its place taken: the one on {} {}: end that process, or "
                               "try again in {} s",
                               name_of(late.join), host, kPlaceOfSilent,
                               whole_seconds(config_.silence))));
}

void RendezvousState::admit_late(Participant late, const Place& place) {
  const std::int32_t process = late.join.process;
  returning_.insert(process);
  due_[process] = clock_time(self_->clock()) + time_to_become_ready();
  offered_.erase(process);
  Participant& participant = participants_[process];
  participant = std::move(late);
  Admission admission = admission_to_all();
  admission.joins = true;
  admission.absent = place.absent;
  participant.answer.deliver(admission_for(admission, participant.join));
  ask_returning(process);
}

// While it connects, no other process can return: a stopped one must not keep the place.
void RendezvousState::ask_returning(std::int32_t process) {
  const Join& join = participants_.at(process).join;
  const std::string nonce = join.nonce;
  asked_[process] = clock_time(self_->clock());
  self_->request(join.agent, config_.answer_timeout, Ping{})
      .then(
          [this, process, nonce](Pong) {
            if (is_returning(process, nonce)) asked_.erase(process);
            self_->delayed_send(RendezvousActor{self_}, kReturnInterval, AskPlaceAgain{nonce});
          },
          [this, process, nonce](const caf::error& error) {
            // The end of its agent is reported besides.
            if (life_after(error) == Life::silent)
              on_silent_return(process, nonce, config_.answer_timeout);
          });
}

bool RendezvousState::is_returning(std::int32_t process, const std::string& nonce) const {
  return returning_.count(process) > 0 && participants_.at(process).join.nonce == nonce;
}

// Another process waits for a place, and this is called each kPlaceInterval. After a longer time
// this process may have stood still: answers may wait behind the message that calls this.
void RendezvousState::give_up_silent_returns() {
  const Timestamp now = clock_time(self_->clock());
  const bool stood_still = !silence_looked_at_ || now - *silence_looked_at_ > kStoodStill;
  silence_looked_at_ = now;
  if (stood_still)
    for (auto& [process, since] : asked_) since = now;
  for (const auto& [process, since] : std::map<std::int32_t, Timestamp>(asked_))
    if (now - since >= config_.waited_answer)
      on_silent_return(process, participants_.at(process).join.nonce, now - since);
  give_up_long_returns(now, stood_still);
}

// Its agent answers while its main thread hangs, for example in a file system or a driver.
// `stood_still`: its Ready may wait to be read.
void RendezvousState::give_up_long_returns(Timestamp now, bool stood_still) {
  if (stood_still)
    for (auto& [process, due] : due_) due = std::max(due, now + config_.waited_answer);
  for (const auto& [process, due] : std::map<std::int32_t, Timestamp>(due_))
    if (now >= due)
      give_up_return(process, fmt::format("was not ready {} s after it had received its place",
                                          whole_seconds(time_to_become_ready())));
}

void RendezvousState::on_silent_return(std::int32_t process, const std::string& nonce,
                                       Duration silence) {
  if (!is_returning(process, nonce)) return;
  give_up_return(process,
                 fmt::format("has not answered for {} s while it joined", whole_seconds(silence)));
}

// `why`: a phrase after its name.
void RendezvousState::give_up_return(std::int32_t process, const std::string& why) {
  const Join& join = participants_.at(process).join;
  const Error error{Errc::peer_down, fmt::format("{} {}: it has lost its place, start it again",
                                                 name_of(join), why)};
  spdlog::warn("{}", error.message);
  self_->send(join.agent, RunEnded{true, error, false, ""});
  end_return(process, {});
}

void RendezvousState::on_late_ready(Ready& ready) {
  const auto participant = participants_.find(ready.process);
  const bool known = returning_.count(ready.process) > 0 && participant != participants_.end() &&
                     equal_secrets(participant->second.join.nonce, ready.nonce);
  if (!known)
    return ignore("ignored an unauthenticated message for process " +
                  std::to_string(ready.process));
  const Join& join = participant->second.join;
  const auto complete = ready.failed ? Expected<void>() : check_ranks(ready, join);
  if (ready.failed) spdlog::warn("{} could not join: {}", name_of(join), ready.error.message);
  if (!complete) spdlog::warn("{} could not join: it {}", name_of(join), complete.error().message);
  end_return(ready.process,
             ready.failed || !complete ? std::vector<PeerActor>() : std::move(ready.peers));
}

void RendezvousState::on_late_down(const caf::actor_addr& agent) {
  std::set<std::int32_t> gone;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const Join& join = it->second.participant.join;
    const bool its = join.agent.address() == agent;
    if (its) gone.insert(join.process);
    it = its ? waiting_.erase(it) : std::next(it);
  }
  for (const std::int32_t process : gone) give_place_back(process);
  for (const std::int32_t process : returning_)
    if (participants_.at(process).join.agent.address() == agent) return end_return(process, {});
}

// `peers`: none where the process has failed.
void RendezvousState::end_return(std::int32_t process, std::vector<PeerActor> peers) {
  returning_.erase(process);
  asked_.erase(process);
  due_.erase(process);
  self_->send(config_.supervisor,
              ProcessReturned{process, -1, participants_.at(process).join.agent, std::move(peers)});
}

}  // namespace grapevine
