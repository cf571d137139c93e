// A ViewChange and the ViewMembers of three ranks, one of which may only serve, and a WiringChange,
// in every order in which their messages, the ends of gradients, the death of a rank, the report of
// it and its return may happen.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "actors/run/peer/view_member.hpp"
#include "actors/run/supervision/view_change.hpp"
#include "actors/run/supervision/wiring/wiring_change.hpp"

namespace grapevine {

// All that decides what an object does from here on, as a text. Of rounds of questions only whether
// they are the newest.
struct ViewFingerprint {
  static void add(std::ostream& out, const ViewChange& change) {
    out << static_cast<int>(change.stage_) << ' ' << change.number_ << ' ' << change.last_sent_
        << " m";
    for (const Rank rank : change.members_) out << rank;
    out << " i";
    for (const Rank rank : change.installed_.members) out << rank;
    out << " t";
    for (const auto& [rank, traffic] : change.traffic_)
      out << rank << ':' << traffic.sent << ':' << traffic.received << ' ';
    out << 'c';
    for (const auto& [rank, closed] : change.closed_)
      out << rank << ':' << closed.operations << ' ';
    out << 'j';
    for (const Rank rank : change.without_state_) out << rank;
  }
  static std::int64_t round(const ViewChange& change) { return change.round_; }

  static void add(std::ostream& out, const WiringChange& change) {
    out << 'w' << static_cast<int>(change.stage_) << ' ' << change.number_ << 'm';
    for (const Rank rank : change.missing_) out << rank;
  }

  static void add(std::ostream& out, const ViewMember& member, std::int64_t round) {
    out << static_cast<int>(member.stage_) << member.gradient_ends_ << ' ' << member.number_ << ' '
        << member.installed_ << ' ' << (member.asked_ < 0 ? -1 : member.asked_ == round)
        << member.known_.has_value() << 'a';
    for (const bool alive : member.membership_.alive) out << alive;
    out << 'p';
    for (const Rank rank : member.proposed_) out << rank;
    out << 'n';
    for (const Rank rank : member.arriving_) out << rank;
    out << 'w';
    for (const Rank rank : member.proposed_new_) out << rank;
    out << 'j' << member.joins_;
    for (const Rank rank : member.ended_) out << rank;
    for (const auto* counts : {&member.sent_to_, &member.received_from_}) {
      out << '/';
      for (const auto& [rank, count] : *counts)
        if (count != 0) out << rank << ':' << count << ' ';
    }
  }
};

namespace every_interleaving_test {

constexpr Rank kRanks = 3;
constexpr Rank kServer = 2;  // where a plan has one

// Of an exchange among the members of a view: it is answered so many times, to and fro.
struct Note {
  std::int64_t view = 0;
  int answers = 0;
};
// The state that a rank of the view gives to one that joins.
struct State {
  std::int64_t view = 0;
};
// The part of a rank in the mean of all models, between two wirings.
struct Part {
  std::int64_t view = 0;
};
// The last of a rank's messages: it has ended.
struct End {};

using FromSupervisor = std::variant<HoldForView, AskTraffic, CloseView, InstallView, CheckSettings>;
using ToSupervisor = std::variant<Traffic, ViewClosed, SettingsChecked, ModelShared>;
using Between = std::variant<Note, State, Part, End>;

// What a rank has beside its ViewMember, as a Peer does.
struct Seat {
  ViewMember member;
  bool alive = true, started = true;
  std::int64_t view = 0;  // of its role
  int gradients = 0;      // that its role still wants
  bool computing = false;
  bool joins = false;
  std::optional<InstallView> installs;  // and waits for a state
  std::int64_t state_of = 0;            // view of the state that has come; 0: none
  std::set<Rank> ended;                 // of which it has heard before its first view
  std::deque<std::pair<Rank, Between>> early;
  // Of its role: the wiring, whether it is CommonModel, and whose parts of the mean it has then.
  LiveSettings wiring;
  ViewKind kind = ViewKind::members;
  std::vector<Rank> members;
  std::set<Rank> parts;
  bool has_mean = false;
};

struct Plan {
  int gradients = 1;  // of each of them
  int answers = 1;    // to each message of a gradient
  int changes = 0;    // that nothing but a request begins
  std::vector<Rank> mortal;
  bool returns = false;
  bool serves = false;  // the last rank trains not, and answers the others
  int wirings = 0;      // changes of the wiring
};

// Of what a dead rank had sent: the receivers that have nothing of it. The others have all.
using Unreached = std::set<Rank>;
constexpr Rank kSupervisor = kRanks;

// One state of all. Copied for each way on from it.
class World {
 public:
  explicit World(const Plan& plan)
      : plan_(&plan),
        change_(plan.serves ? TrainingRanks{{0, 1}, {}, {kServer}}
                            : TrainingRanks{{0, 1, 2}, {}, {}}),
        remaining_(plan.serves ? std::vector<Rank>{0, 1} : std::vector<Rank>{0, 1, 2}),
        installed_(remaining_),
        changes_(plan.changes),
        wirings_(plan.wirings) {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      seats_[rank].member = ViewMember(rank, kRanks, kRanks);
      seats_[rank].gradients = serves(rank) ? 0 : plan.gradients;
      compute(seats_[rank]);
    }
  }

  const std::string& problem() const { return problem_; }

  using Step = std::pair<std::string, std::function<void(World&)>>;

  // All that may happen next.
  std::vector<Step> steps() const {
    std::vector<Step> found;
    const auto add = [&found](std::string name, std::function<void(World&)> step) {
      found.emplace_back(std::move(name), std::move(step));
    };
    const auto of = [](const char* what, Rank rank) { return what + std::to_string(rank); };
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const Seat& seat = seats_[rank];
      if (seat.alive && !to_[rank].empty())
        add(of("supervisor>", rank), [rank](World& world) { world.hear_supervisor(rank); });
      if (!from_[rank].empty())
        add(of("supervisor<", rank), [rank](World& world) { world.hear_rank(rank); });
      for (Rank other = 0; other < kRanks; ++other)
        if (seat.alive && !between_[other][rank].empty())
          add(of("message ", other) + of(">", rank),
              [other, rank](World& world) { world.hear(other, rank); });
      if (seat.alive && seat.computing)
        add(of("gradient ", rank), [rank](World& world) { world.end_gradient(rank); });
      if (!seat.alive && !is_lost(rank))
        add(of("loss ", rank), [rank](World& world) { world.learn_of_loss(rank); });
      if (is_lost(rank) && plan_->returns && returned_.count(rank) == 0 && !is_changing() &&
          !contains(installed_, rank))
        add(of("return ", rank), [rank](World& world) { world.bring_back(rank); });
    }
    for (const Rank rank : plan_->mortal)
      if (seats_[rank].alive && deaths_.count(rank) == 0)
        for (const Unreached& unreached : fates_of(rank)) {
          std::string name = of("death ", rank) + (unreached.empty() ? "" : ", unknown to");
          for (const Rank to : unreached) name += ' ' + std::to_string(to);
          add(name, [rank, unreached](World& world) { world.kill(rank, unreached); });
        }
    if (timer_) add("timer", [](World& world) { world.fire_timer(); });
    if (changes_ > 0 && !is_changing())
      add("request", [](World& world) {
        --world.changes_;
        world.begin_change();
      });
    if (wirings_ > 0 && !is_changing()) add("set", [](World& world) { world.ask_for_wiring(); });
    return found;
  }

  // Nothing is left to happen: all that live train among themselves, with one wiring, and have done
  // their part.
  void check_end() {
    if (wiring_.in_progress()) return fail("the wiring still changes");
    if (deaths_.empty() && plan_->wirings > 0 && settings_ != wiring_number(plan_->wirings))
      return fail("the wiring has not changed");
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const Seat& seat = seats_[rank];
      if (!seat.alive) continue;
      const std::string name = "rank " + std::to_string(rank);
      if (seat.member.is_holding()) return fail(name + " still waits for a view");
      if (seat.view != change_.number()) return fail(name + " is not in the newest view");
      if (seat.gradients > 0) return fail(name + " has not gone on");
      if (!seat.early.empty()) return fail(name + " has messages that it has not had");
      if (seat.kind == ViewKind::common_model) return fail(name + " stays between two wirings");
      if (seat.wiring != settings_) return fail(name + " has another wiring than the run");
      for (Rank other = 0; other < kRanks; ++other)
        if (seat.member.membership().is_alive(other) != seats_[other].alive)
          return fail(name + " is wrong of rank " + std::to_string(other));
    }
  }

  std::string fingerprint() const {
    std::ostringstream out;
    ViewFingerprint::add(out, change_);
    const std::int64_t round = ViewFingerprint::round(change_);
    ViewFingerprint::add(out, wiring_);
    out << text_of(settings_) << common_ << wirings_;
    out << '|' << timer_ << changes_ << 'r';
    for (const Rank rank : remaining_) out << rank;
    out << 'b' << returned_.size() << 'd' << deaths_.size() << 'i';
    for (const Rank rank : installed_) out << rank;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const Seat& seat = seats_[rank];
      out << '|';
      ViewFingerprint::add(out, seat.member, round);
      out << ' ' << seat.alive << seat.started << seat.view << ' ' << seat.gradients
          << seat.computing << seat.joins << (seat.installs ? seat.installs->view : 0) << ' '
          << seat.state_of << 'x';
      for (const Rank dead : seat.ended) out << dead;
      out << 'e';
      for (const auto& [from, message] : seat.early) {
        out << from << ':';
        print(out, message);
      }
      out << 'v' << text_of(seat.wiring) << static_cast<int>(seat.kind) << seat.has_mean << 'm';
      for (const Rank member : seat.members) out << member;
      out << 'p';
      for (const Rank part : seat.parts) out << part;
      for (const FromSupervisor& message : to_[rank]) print(out, message, round);
      out << '<';
      for (const ToSupervisor& message : from_[rank]) print(out, message, round);
      for (Rank other = 0; other < kRanks; ++other) {
        out << '-';
        for (const Between& message : between_[rank][other]) print(out, message);
      }
    }
    return out.str();
  }

 private:
  static void print(std::ostream& out, const FromSupervisor& message, std::int64_t round) {
    out << 'k' << message.index();
    if (const auto* hold = std::get_if<HoldForView>(&message)) {
      out << hold->view << hold->gradients_end << 'm';
      for (const Rank rank : hold->members) out << rank;
      out << 'a';
      for (const Rank rank : hold->arriving) out << rank;
    }
    if (const auto* ask = std::get_if<AskTraffic>(&message))
      out << ask->view << ':' << (round == ask->round);
    if (const auto* close = std::get_if<CloseView>(&message)) out << close->view;
    if (const auto* view = std::get_if<InstallView>(&message)) {
      out << view->view << 'd' << view->donor << 'k' << static_cast<int>(view->kind) << 'j';
      for (const Rank rank : view->joining) out << rank;
      out << 'b';
      for (const Rank rank : view->behind) out << rank;
    }
    if (const auto* check = std::get_if<CheckSettings>(&message)) out << check->number;
  }
  static void print(std::ostream& out, const ToSupervisor& message, std::int64_t round) {
    if (const auto* traffic = std::get_if<Traffic>(&message))
      out << 't' << traffic->view << ':' << (round == traffic->round) << ':' << traffic->sent << ':'
          << traffic->received;
    else if (const auto* closed = std::get_if<ViewClosed>(&message))
      out << 'c' << closed->view << closed->operations;
    else if (const auto* checked = std::get_if<SettingsChecked>(&message))
      out << 's' << checked->number;
    else
      out << 'm' << std::get<ModelShared>(message).view;
  }
  static void print(std::ostream& out, const Between& message) {
    out << message.index();
    if (const auto* note = std::get_if<Note>(&message)) out << note->view << ':' << note->answers;
    if (const auto* state = std::get_if<State>(&message)) out << state->view;
    if (const auto* part = std::get_if<Part>(&message)) out << part->view;
  }
  static LiveSettings wiring_number(int number) {
    return {{kAlgorithmSetting, std::to_string(number)}};
  }
  static std::string text_of(const LiveSettings& wiring) {
    return wiring.empty() ? "0" : wiring.begin()->second;
  }
  static bool contains(const std::vector<Rank>& ranks, Rank rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }
  bool serves(Rank rank) const { return plan_->serves && rank == kServer; }
  bool is_lost(Rank rank) const { return !serves(rank) && !contains(remaining_, rank); }
  bool is_changing() const { return change_.in_progress() || wiring_.in_progress(); }
  void fail(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
  }

  // ---- the supervisor

  void tell(const FromSupervisor& message) {
    for (Rank rank = 0; rank < kRanks; ++rank)
      if (seats_[rank].alive) to_[rank].push_back(message);
  }
  void begin_change() {
    change_.begin(remaining_);
    timer_ = false;  // it would find a newer question
    tell(HoldForView{change_.number(), change_.participants(), change_.arriving(),
                     !change_.loses_members()});
    ask();
  }
  // Another wiring takes the place of the present one, if all ranks can make it.
  void ask_for_wiring() {
    const LiveSettings next = wiring_number(plan_->wirings - --wirings_);
    std::set<Rank> ranks(remaining_.begin(), remaining_.end());
    wiring_.ask(next, next, std::move(ranks));
    tell(CheckSettings{wiring_.number(), wiring_.settings()});
  }
  void ask() {
    if (change_.draining()) tell(AskTraffic{change_.number(), change_.begin_round()});
  }
  void fire_timer() {
    timer_ = false;
    ask();
  }
  void hear_rank(Rank rank) {
    const ToSupervisor message = from_[rank].front();
    from_[rank].pop_front();
    std::visit([this](const auto& answer) { take(answer); }, message);
  }
  void take(const Traffic& traffic) { go_on(change_.add(traffic)); }
  void take(const ViewClosed& closed) {
    std::vector<Rank> others = change_.participants();
    others.erase(std::remove(others.begin(), others.end(), closed.rank), others.end());
    if (closed.view == change_.number() && closed.operations == ViewClosed::kJoins &&
        change_.has_donor(others))
      fail("a rank without a state was taken for one with it");
    go_on(change_.add(closed));
  }
  void take(const SettingsChecked& checked) {
    if (wiring_.add(checked) == WiringChange::Next::begin) begin_change();
  }
  void take(const ModelShared& shared) {
    if (!change_.in_progress() && wiring_.add(shared, change_.number())) begin_change();
  }
  void go_on(ViewChange::Next next) {
    switch (next) {
      case ViewChange::Next::wait:
        return;
      case ViewChange::Next::ask_later:
        timer_ = true;
        return;
      case ViewChange::Next::ask_again:
        return ask();
      case ViewChange::Next::close:
        expect_no_messages();
        return tell(CloseView{change_.number()});
      case ViewChange::Next::install: {
        if (!change_.has_donor()) return fail("no rank is left that has a state");
        return install();
      }
    }
  }
  void install() {
    const auto models = common_ ? ViewChange::Models::common() : ViewChange::Models();
    InstallView view = change_.conclude(models, {100, 10});
    view.kind = wiring_.install(!view.behind.empty(), view.members);
    if (view.kind == ViewKind::common_model) common_ = true;
    if (view.kind == ViewKind::new_wiring) {
      settings_ = wiring_.settings();
      common_ = false;
    }
    view.settings = settings_;
    installed_ = view.members;
    tell(view);
    if (wiring_.in_progress() && view.kind == ViewKind::members) begin_change();
  }
  // Of the members: what a rank sends from here on is of the view to come.
  void expect_no_messages() {
    const std::vector<Rank> ranks = change_.participants();
    for (const Rank from : ranks)
      for (const Rank to : ranks)
        if (seats_[from].alive && seats_[to].alive && !between_[from][to].empty())
          fail("a message is on its way while roles close");
  }
  void learn_of_loss(Rank rank) {
    remaining_.erase(std::find(remaining_.begin(), remaining_.end(), rank));
    if (wiring_.asks()) wiring_.cancel();  // the client may ask again
    // Its transport's report may have come before HoldForView.
    if (change_.is_arriving(rank))
      for (Rank other = 0; other < kRanks; ++other)
        if (other != rank) hear_of_end(rank, other);
    begin_change();
  }
  // Only after all members have agreed on its loss, so that no message of its life is left.
  void bring_back(Rank rank) {
    returned_.insert(rank);
    for (Rank other = 0; other < kRanks; ++other)
      if (!between_[rank][other].empty() && seats_[other].alive)
        fail("a rank returns before the others have heard of its end");
    from_[rank].clear();
    to_[rank].clear();
    Seat seat;
    seat.member = ViewMember(rank, kRanks, kRanks);
    seat.started = false;
    seat.gradients = plan_->gradients;
    seats_[rank] = seat;
    for (Rank other = 0; other < kRanks; ++other)  // it cannot be reached
      if (!seats_[other].alive && !is_lost(other)) between_[other][rank].emplace_back(End{});
    remaining_.push_back(rank);
    std::sort(remaining_.begin(), remaining_.end());
    begin_change();
  }

  // ---- a rank

  // Each link of its own loses what is on it, or delivers it.
  std::vector<Unreached> fates_of(Rank rank) const {
    std::vector<Unreached> fates = {{}};
    for (Rank to = 0; to <= kSupervisor; ++to) {
      const bool is_idle = to == kSupervisor ? from_[rank].empty() : between_[rank][to].empty();
      for (std::size_t i = 0, count = is_idle ? 0 : fates.size(); i < count; ++i) {
        fates.push_back(fates[i]);
        fates.back().insert(to);
      }
    }
    return fates;
  }
  void kill(Rank rank, const Unreached& unreached) {
    deaths_.insert(rank);
    Seat& seat = seats_[rank];
    seat.alive = seat.computing = false;
    to_[rank].clear();
    if (unreached.count(kSupervisor) > 0) from_[rank].clear();
    for (Rank other = 0; other < kRanks; ++other) {
      between_[other][rank].clear();
      if (other == rank) continue;
      if (unreached.count(other) > 0) between_[rank][other].clear();
      if (seats_[other].alive) between_[rank][other].emplace_back(End{});
    }
  }

  void hear_supervisor(Rank rank) {
    const FromSupervisor message = to_[rank].front();
    to_[rank].pop_front();
    std::visit([&](const auto& m) { take(rank, m); }, message);
  }

  void take(Rank rank, const HoldForView& hold) {
    Seat& seat = seats_[rank];
    if (!seat.member.follows(hold)) return;
    if (!seat.started) {
      seat.started = seat.joins = true;
      seat.member.join();
      for (const Rank dead : seat.ended) seat.member.lose(dead);
    }
    seat.member.hold(hold, seat.computing);
  }
  void take(Rank rank, const AskTraffic& question) {
    seats_[rank].member.ask(question);
    answer(rank);
  }
  void answer(Rank rank) {
    if (const auto traffic = seats_[rank].member.answer()) from_[rank].emplace_back(*traffic);
  }
  void take(Rank rank, const CloseView& close) {
    Seat& seat = seats_[rank];
    if (!seat.member.closes(close)) return;
    seat.member.close();
    seat.early.clear();
    seat.installs.reset();
    seat.state_of = 0;
    ViewClosed closed;
    closed.view = close.view;
    closed.rank = rank;
    closed.operations = seat.joins ? ViewClosed::kJoins : seat.has_mean ? 1 : 0;
    closed.w = 1;
    from_[rank].emplace_back(closed);
  }
  void take(Rank rank, const InstallView& view) {
    Seat& seat = seats_[rank];
    if (!seat.member.installs(view)) return;
    if (seat.joins || contains(view.behind, rank)) {
      seat.installs = view;
      return begin_if_joined(rank);
    }
    if (view.donor == rank)
      for (const auto* takers : {&view.behind, &view.joining})
        for (const Rank taker : *takers) send(rank, taker, State{view.view});
    begin(rank, view);
  }
  void take(Rank rank, const CheckSettings& check) {
    from_[rank].emplace_back(SettingsChecked{check.number, rank, ""});
  }
  void begin_if_joined(Rank rank) {
    Seat& seat = seats_[rank];
    if (!seat.installs || seat.state_of != seat.installs->view) return;
    seat.joins = false;
    begin(rank, InstallView(*seat.installs));
  }
  void begin(Rank rank, const InstallView& view) {
    Seat& seat = seats_[rank];
    seat.member.install(view.view);
    seat.view = view.view;
    seat.kind = view.kind;
    seat.wiring = view.settings;
    seat.members = view.members;
    seat.parts.clear();
    seat.has_mean = false;
    seat.installs.reset();
    seat.computing = false;
    compute(seat);
    if (seat.kind == ViewKind::common_model) share_model(rank);
    const auto early = std::exchange(seat.early, {});
    for (const auto& [from, message] : early) deliver(from, rank, message);
    answer(rank);
  }
  void share_model(Rank rank) {
    const std::vector<Rank> members = seats_[rank].members;
    for (const Rank other : members)
      if (other != rank) send(rank, other, Part{seats_[rank].view});
    take_mean_if_complete(rank);
  }
  void take_mean_if_complete(Rank rank) {
    Seat& seat = seats_[rank];
    if (seat.has_mean || seat.parts.size() + 1 < seat.members.size()) return;
    seat.has_mean = true;
    from_[rank].emplace_back(ModelShared{seat.view, rank});
  }

  static void compute(Seat& seat) {
    seat.computing =
        !seat.member.is_holding() && seat.gradients > 0 && seat.kind != ViewKind::common_model;
  }
  // It begins an exchange with the next member.
  void end_gradient(Rank rank) {
    Seat& seat = seats_[rank];
    seat.computing = false;
    if (!seat.member.takes_gradient()) return;
    --seat.gradients;
    for (Rank i = 1; i < kRanks; ++i) {
      const Rank next = plan_->serves ? kServer : (rank + i) % kRanks;
      if (!seat.member.membership().is_alive(next)) continue;
      send(rank, next, Note{seat.view, plan_->answers});
      break;
    }
    compute(seat);
    if (seat.member.end_gradient()) answer(rank);
  }

  void send(Rank from, Rank to, const Between& message) {
    ViewMember& member = seats_[from].member;
    if (!member.sends_to(to) || !member.membership().is_alive(to)) return;
    member.count_sent(to);
    if (seats_[to].alive) between_[from][to].push_back(message);
  }

  void hear(Rank from, Rank to) {
    const Between message = between_[from][to].front();
    between_[from][to].pop_front();
    Seat& seat = seats_[to];
    if (std::holds_alternative<End>(message)) return hear_of_end(from, to);
    if (!seat.member.membership().is_alive(from)) return;
    seat.member.count_received(from);
    if (const auto* state = std::get_if<State>(&message)) {
      const std::int64_t view = seat.installs ? seat.installs->view : seat.member.number();
      if (!seat.member.is_closed() || state->view != view) return;
      seat.state_of = state->view;
      return begin_if_joined(to);
    }
    if (seat.member.is_closed())
      seat.early.emplace_back(from, message);
    else
      deliver(from, to, message);
  }
  void deliver(Rank from, Rank to, const Between& message) {
    Seat& seat = seats_[to];
    const auto* const note = std::get_if<Note>(&message);
    const std::int64_t view = note != nullptr ? note->view : std::get<Part>(message).view;
    if (view != seat.view)
      fail("rank " + std::to_string(to) + " has a message of view " + std::to_string(view) +
           " in view " + std::to_string(seat.view));
    if (note != nullptr && note->answers > 0) send(to, from, Note{seat.view, note->answers - 1});
    if (note != nullptr) return;
    if (seat.kind != ViewKind::common_model)
      fail("rank " + std::to_string(to) + " has a part of a mean that it does not take");
    seat.parts.insert(from);
    take_mean_if_complete(to);
  }
  void hear_of_end(Rank dead, Rank told) {
    ViewMember& member = seats_[told].member;
    if (!seats_[told].started) seats_[told].ended.insert(dead);
    if (!seats_[told].alive || !seats_[told].started || !member.membership().is_alive(dead)) return;
    member.lose(dead);
    member.forget(dead);
    answer(told);
  }

  const Plan* plan_;
  ViewChange change_;
  std::vector<Rank> remaining_;  // as the supervisor knows
  std::vector<Rank> installed_;  // members of the last view that it concluded
  std::set<Rank> returned_, deaths_;
  bool timer_ = false;
  int changes_ = 0;  // still to be requested
  WiringChange wiring_;
  int wirings_ = 0;        // still to be requested
  LiveSettings settings_;  // of the run
  bool common_ = false;    // the newest view is that of CommonModel
  Seat seats_[kRanks];
  std::deque<FromSupervisor> to_[kRanks];
  std::deque<ToSupervisor> from_[kRanks];
  std::deque<Between> between_[kRanks][kRanks];
  std::string problem_;
};

// Depth first. Stops at the first problem, whose way it prints.
class Search {
 public:
  explicit Search(const Plan& plan) : plan_(plan) {}

  void run() { visit(World(plan_)); }
  std::size_t states() const { return seen_.size(); }
  std::size_t ends() const { return ends_; }

 private:
  void visit(World&& world) {
    struct Frame {
      World world;
      std::vector<World::Step> steps;
      std::size_t next = 0;
    };
    std::vector<Frame> way;
    const auto enter = [&](World&& next) {
      if (!seen_.insert(next.fingerprint()).second) return;
      std::vector<World::Step> steps = next.steps();
      way.push_back({std::move(next), std::move(steps)});
    };
    enter(std::move(world));
    while (!way.empty()) {
      Frame& frame = way.back();
      if (frame.steps.empty()) {
        ++ends_;
        frame.world.check_end();
      }
      if (!frame.world.problem().empty()) {
        std::string names;
        for (const Frame& earlier : way)
          if (earlier.next > 0) names += "\n  " + earlier.steps[earlier.next - 1].first;
        FAIL() << frame.world.problem() << ", after" << names;
      }
      if (frame.next == frame.steps.size()) {
        way.pop_back();
        continue;
      }
      World next = frame.world;
      frame.steps[frame.next++].second(next);
      enter(std::move(next));
    }
  }

  const Plan plan_;
  std::unordered_set<std::string> seen_;
  std::size_t ends_ = 0;
};

void expect_sound(const Plan& plan, std::size_t least_states) {
  Search search(plan);
  search.run();
  EXPECT_GE(search.states(), least_states);
  EXPECT_GT(search.ends(), 0u);
}

TEST(EveryInterleaving, OfARequestedChange) {
  Plan plan;
  plan.changes = 1;
  plan.gradients = 2;
  plan.answers = 0;
  expect_sound(plan, 10000);
}

TEST(EveryInterleaving, OfADeath) {
  Plan plan;
  plan.mortal = {2};
  expect_sound(plan, 5000);
}

TEST(EveryInterleaving, OfADeathInARequestedChange) {
  Plan plan;
  plan.mortal = {1};
  plan.changes = 1;
  plan.answers = 0;
  expect_sound(plan, 10000);
}

TEST(EveryInterleaving, OfTwoDeaths) {
  Plan plan;
  plan.mortal = {1, 2};
  expect_sound(plan, 10000);
}

TEST(EveryInterleaving, OfAReturn) {
  Plan plan;
  plan.mortal = {2};
  plan.returns = true;
  expect_sound(plan, 10000);
}

TEST(EveryInterleaving, OfADeathWhileARankReturns) {
  Plan plan;
  plan.mortal = {1, 2};
  plan.returns = true;
  plan.answers = 0;
  expect_sound(plan, 5000);
}

// The last rank trains not: it takes part in each change and is no member of its view.
TEST(EveryInterleaving, OfADeathBesideAServer) {
  Plan plan;
  plan.serves = true;
  plan.mortal = {1};
  plan.gradients = 2;
  expect_sound(plan, 5000);
}

TEST(EveryInterleaving, OfAReturnBesideAServer) {
  Plan plan;
  plan.serves = true;
  plan.mortal = {0};
  plan.returns = true;
  plan.gradients = 2;
  expect_sound(plan, 5000);
}

TEST(EveryInterleaving, OfAChangedWiring) {
  Plan plan;
  plan.wirings = 1;
  plan.answers = 0;
  expect_sound(plan, 3000);
}

TEST(EveryInterleaving, OfADeathWhileTheWiringChanges) {
  Plan plan;
  plan.wirings = 1;
  plan.mortal = {0};
  plan.gradients = 0;
  expect_sound(plan, 5000);
}

// One change follows another, and a rank returns between them or before both.
TEST(EveryInterleaving, OfAReturnAroundSuccessiveWirings) {
  Plan plan;
  plan.wirings = 2;
  plan.mortal = {2};
  plan.returns = true;
  plan.gradients = 0;
  expect_sound(plan, 5000);
}

}  // namespace every_interleaving_test
}  // namespace grapevine
