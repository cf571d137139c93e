#include "apps/trace/blame.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace grapevine {
namespace {

// A shorter rest of a wait needs no cause.
constexpr std::int64_t kShortRestNs = 500'000;
// A longer rest than usual is due to a stall before the wait.
constexpr std::int64_t kLeastBeforeNs = 10'000'000;
constexpr std::size_t kStallsAtOnce = 16;  // of one culprit that waits may still meet
constexpr std::size_t kPathKept = 64;      // spans of a wait
constexpr std::size_t kWaitsKept = 4;      // of a step
constexpr std::size_t kGradientsKept = 8;  // of a step
// Of the run: a culprit that is always slow has made others wait at least so long.
constexpr double kLeastAlways = 0.05;

std::optional<CulpritKind> culprit_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::compute:
    case SpanKind::handling:
      return CulpritKind::compute;
    case SpanKind::data:
      return CulpritKind::data;
    case SpanKind::link:
      return CulpritKind::link;
    case SpanKind::server:
      return CulpritKind::server;
    case SpanKind::members:
      return CulpritKind::loss;
    case SpanKind::timer:
    case SpanKind::start:
      break;
  }
  return std::nullopt;
}

Rank rank_of(const Span& span) { return span.kind == SpanKind::members ? span.peer : span.rank; }

// All waits for one lost rank are one stall.
std::int64_t begin_of_stall(const Span& span) {
  return span.kind == SpanKind::members ? span.from_ns : span.begin_ns;
}

std::int64_t overlap(std::int64_t begin, std::int64_t end, std::int64_t from, std::int64_t to) {
  return std::max<std::int64_t>(0, std::min(end, to) - std::max(begin, from));
}

// By process, sorted and without overlaps.
std::vector<std::vector<Pause>> pauses_by_rank(const RunLayout& layout) {
  std::vector<std::vector<Pause>> of_rank(static_cast<std::size_t>(layout.ranks()));
  for (std::size_t rank = 0; rank < of_rank.size() && rank < layout.process_of.size(); ++rank) {
    std::vector<Pause> own;
    for (const ProcessPause& pause : layout.pauses)
      if (pause.process == layout.process_of[rank]) own.push_back(pause.pause);
    std::sort(own.begin(), own.end(),
              [](const Pause& a, const Pause& b) { return a.begin_ns < b.begin_ns; });
    for (const Pause& pause : own)
      if (!of_rank[rank].empty() && pause.begin_ns <= of_rank[rank].back().end_ns)
        of_rank[rank].back().end_ns = std::max(of_rank[rank].back().end_ns, pause.end_ns);
      else
        of_rank[rank].push_back(pause);
  }
  return of_rank;
}

// A pause inside a span.
struct PauseIn {
  Rank rank;
  std::int64_t begin_ns, end_ns;  // clipped to the span
  std::int64_t whole_begin_ns;    // of the pause
};

void add_pauses(const std::vector<Pause>& pauses, Rank rank, const Span& span,
                std::vector<PauseIn>& out) {
  auto pause = std::upper_bound(
      pauses.begin(), pauses.end(), span.begin_ns,
      [](std::int64_t time, const Pause& candidate) { return time < candidate.end_ns; });
  for (; pause != pauses.end() && pause->begin_ns < span.end_ns; ++pause)
    out.push_back({rank, std::max(pause->begin_ns, span.begin_ns),
                   std::min(pause->end_ns, span.end_ns), pause->begin_ns});
}

// Without overlaps: what begins first, counts.
std::vector<PauseIn> pauses_in(const std::vector<std::vector<Pause>>& pauses, const Span& span) {
  std::vector<PauseIn> all;
  add_pauses(pauses[static_cast<std::size_t>(span.rank)], span.rank, span, all);
  const bool has_peer = span.peer >= 0 && static_cast<std::size_t>(span.peer) < pauses.size();
  if (has_peer) add_pauses(pauses[static_cast<std::size_t>(span.peer)], span.peer, span, all);
  std::stable_sort(all.begin(), all.end(),
                   [](const PauseIn& a, const PauseIn& b) { return a.begin_ns < b.begin_ns; });
  std::int64_t until_ns = span.begin_ns;
  for (PauseIn& pause : all) {
    pause.begin_ns = std::max(pause.begin_ns, until_ns);
    pause.end_ns = std::max(pause.end_ns, pause.begin_ns);
    until_ns = pause.end_ns;
  }
  return all;
}

}  // namespace

const char* name_of(CulpritKind kind) {
  switch (kind) {
    case CulpritKind::compute:
      return "compute";
    case CulpritKind::link:
      return "link";
    case CulpritKind::data:
      return "data";
    case CulpritKind::server:
      return "server";
    case CulpritKind::pause:
      return "pause";
    case CulpritKind::loss:
      return "loss";
  }
  return "";
}

Blame::Blame(RunLayout layout, BlameQuestion question)
    : layout_(std::move(layout)),
      question_(question),
      pauses_(pauses_by_rank(layout_)),
      causes_(std::in_place, layout_),
      usual_(layout_, question.least_ns),
      ranks_(static_cast<std::size_t>(layout_.ranks())) {}

// ---- the first pass ----

void Blame::learn(const TraceRecord& record) {
  if (!layout_.is_rank(record.rank)) return;
  const std::int64_t now_ns = clock_.of(record);
  if (first_ns_ < 0) first_ns_ = now_ns;
  last_ns_ = std::max(last_ns_, now_ns);
  causes_->add(record);
  for (const Span& span : causes_->completed()) usual_.add(span);
  follow_step(record);
  OfRank& rank = of(record.rank);
  if (record.kind == EventKind::wait_begin && rank.wait_begin_ns < 0)
    rank.wait_begin_ns = record.time_ns;
  if (record.kind == EventKind::wait_end && rank.wait_begin_ns >= 0)
    usual_.add_wait(record.rank, record.time_ns - std::exchange(rank.wait_begin_ns, -1));
  if (record.kind != EventKind::step_done) return;
  usual_.add_step(record.rank, record.time_ns - rank.step_begin_ns);
  rank.step_begin_ns = record.time_ns;
  rank.asked_ns = -1;
}

// Where only some steps are recorded, a step begins with its request.
void Blame::follow_step(const TraceRecord& record) {
  OfRank& rank = of(record.rank);
  if (rank.step_begin_ns < 0) rank.step_begin_ns = record.time_ns;
  if (begins_anew(record)) {
    rank.step_begin_ns = record.time_ns;
    rank.wait_begin_ns = -1;
  }
  if (is_return(record)) rank.step = {};
  if (record.kind != EventKind::asked || layout_.sampled <= 1 || rank.asked_ns >= 0) return;
  rank.asked_ns = rank.step_begin_ns = record.time_ns;
}

void Blame::start_second_pass() {
  in_second_pass_ = true;
  usual_.finish();
  causes_.emplace(layout_);
  ranks_.assign(ranks_.size(), {});
}

// ---- the second pass ----

void Blame::judge(const TraceRecord& record) {
  if (!in_second_pass_) start_second_pass();
  if (!layout_.is_rank(record.rank)) return;
  causes_->add(record);
  for (const Span& span : causes_->completed())
    if (span.kind == SpanKind::compute || (span.kind == SpanKind::data && span.length_ns() > 0))
      note_own_gradient(span);
  follow_step(record);
  OfRank& rank = of(record.rank);
  if (record.kind == EventKind::wait_begin && rank.wait_begin_ns < 0)
    rank.wait_begin_ns = record.time_ns;
  if (record.kind == EventKind::wait_end) end_wait(record);
  if (record.kind == EventKind::step_done) end_step(record);
}

void Blame::note_own_gradient(const Span& span) {
  BlamedStep& step = of(span.rank).step;
  Window window{span.begin_ns, span.end_ns, false, span.length_ns(), span.length_ns()};
  const BlamedSpan blamed = charge(span, window);
  if (step.own.size() < kGradientsKept) step.own.push_back(blamed);
}

void Blame::end_wait(const TraceRecord& record) {
  OfRank& rank = of(record.rank);
  const std::int64_t begin_ns = std::exchange(rank.wait_begin_ns, -1);
  if (begin_ns < 0 || begin_ns > record.time_ns) return;
  BlamedWait wait;
  wait.rank = record.rank;
  wait.step = record.step;
  wait.begin_ns = begin_ns;
  wait.end_ns = record.time_ns;
  ++waits_;
  waited_ns_ += wait.length_ns();
  rank.step.waited_ns += wait.length_ns();
  causes_->trace_back(record, begin_ns, path_);
  judge_wait(wait);
  keep_worst(wait);
  if (question_.about == BlameQuestion::About::all) return;
  std::vector<BlamedWait>& waits = rank.step.waits;
  waits.push_back(std::move(wait));
  std::sort(waits.begin(), waits.end(),
            [](const BlamedWait& a, const BlamedWait& b) { return a.length_ns() > b.length_ns(); });
  if (waits.size() > kWaitsKept) waits.pop_back();
}

// First the causes inside the wait. The rest of it is due to what made the path long before the
// wait began, from the handler of the waiting rank where its own path and this one part.
void Blame::judge_wait(BlamedWait& wait) {
  charged_.clear();
  std::vector<BlamedSpan> path;
  path.reserve(path_.size());
  Window inside{wait.begin_ns, wait.end_ns, true, wait.length_ns(), wait.length_ns(), wait.rank};
  for (const Span& span : path_) path.push_back(charge(span, inside));
  Window before{
      std::numeric_limits<std::int64_t>::min(),         wait.begin_ns, true, inside.left_ns,
      inside.left_ns - usual_.usual_wait_ns(wait.rank), wait.rank};
  if (before.left_of_stalls_ns < kLeastBeforeNs) before.left_of_stalls_ns = 0;
  for (BlamedSpan& blamed : path) {
    if (before.left_ns < kShortRestNs) break;
    if (blamed.span.begin_ns >= wait.begin_ns) continue;
    const BlamedSpan earlier = charge(blamed.span, before);
    blamed.unusual_ns += earlier.unusual_ns;
    blamed.paused_ns += earlier.paused_ns;
    if (earlier.paused_rank >= 0) blamed.paused_rank = earlier.paused_rank;
  }
  const std::size_t tail = path.size() > kPathKept ? kPathKept / 2 : path.size();
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool is_charged = path[i].unusual_ns > 0 || path[i].paused_ns > 0;
    const bool is_kept =
        is_charged || i < tail || (path[i].inside_ns > 0 && i + tail >= path.size());
    if (path[i].inside_ns == 0 && !is_charged) continue;
    if (is_kept)
      wait.path.push_back(path[i]);
    else
      ++wait.left_out;
  }
}

void Blame::end_step(const TraceRecord& record) {
  OfRank& rank = of(record.rank);
  BlamedStep step = std::exchange(rank.step, {});
  last_step_ = std::max(last_step_, record.step);
  step.rank = record.rank;
  step.step = record.step;
  step.begin_ns = std::exchange(rank.step_begin_ns, record.time_ns);
  step.end_ns = record.time_ns;
  step.usual_ns = usual_.usual_step_ns(record.rank);
  rank.asked_ns = -1;
  keep_step(std::move(step));
}

// Of the slowest, one rank of each step: where the step was equally long on several, the one that
// waited most.
void Blame::keep_step(BlamedStep step) {
  if (question_.about == BlameQuestion::About::all) return;
  if (question_.about == BlameQuestion::About::step) {
    if (step.step == question_.step) steps_.push_back(std::move(step));
    return;
  }
  const auto slower = [](const BlamedStep& a, const BlamedStep& b) {
    return a.length_ns() > b.length_ns();
  };
  const auto same = std::find_if(steps_.begin(), steps_.end(), [&step](const BlamedStep& kept) {
    return kept.step == step.step;
  });
  if (same == steps_.end()) {
    if (steps_.size() >= question_.most_steps && !slower(step, steps_.back())) return;
    steps_.push_back(std::move(step));
  } else {
    const std::int64_t near = same->length_ns() / 10;
    const bool is_longer = step.length_ns() > same->length_ns() + near;
    const bool is_as_long = step.length_ns() > same->length_ns() - near;
    if (!is_longer && !(is_as_long && step.waited_ns > same->waited_ns)) return;
    *same = std::move(step);
  }
  std::sort(steps_.begin(), steps_.end(), slower);
  if (steps_.size() > question_.most_steps) steps_.pop_back();
}

// ---- accounts ----

void Blame::Window::take(std::int64_t ns) {
  left_ns -= ns;
  left_of_stalls_ns = std::max<std::int64_t>(0, left_of_stalls_ns - ns);
}

// The part of the span inside the window: the pauses of its ranks, and what is more than usual.
BlamedSpan Blame::charge(const Span& span, Window& whole) {
  Window window = whole;
  window.begin_ns = std::max(window.begin_ns, span.from_ns);
  BlamedSpan blamed;
  blamed.span = span;
  blamed.inside_ns = overlap(span.begin_ns, span.end_ns, window.begin_ns, window.end_ns);
  const std::int64_t active_ns = span.length_ns() - charge_pauses(span, window, blamed);
  const Excess excess = usual_.excess(span, active_ns);
  blamed.usual_ns = excess.usual_ns;
  if (excess.is_unusual || excess.ordinary_ns < excess.usual_ns)
    charge_active(span, excess, window, blamed);
  whole.take(whole.left_ns - window.left_ns);
  return blamed;
}

// All of the span that is paused; what is in the window is charged.
std::int64_t Blame::charge_pauses(const Span& span, Window& window, BlamedSpan& blamed) {
  if (layout_.pauses.empty() || !culprit_of(span.kind)) return 0;
  std::int64_t paused = 0;
  for (const PauseIn& pause : pauses_in(pauses_, span)) {
    paused += pause.end_ns - pause.begin_ns;
    const CulpritKey key{CulpritKind::pause, pause.rank, -1};
    const std::int64_t inside = std::min(
        {window.left_of_stalls_ns,
         overlap(pause.begin_ns, pause.end_ns, window.begin_ns, window.end_ns),
         left_of_stall(key, pause.whole_begin_ns, pause.end_ns - pause.whole_begin_ns, window)});
    if (inside == 0) continue;
    window.take(inside);
    blamed.paused_ns += inside;
    blamed.paused_rank = pause.rank;
    charge_stall(key, pause.whole_begin_ns, inside, window);
  }
  return paused;
}

// The usual part comes first, the rest is late: it is what a wait has met.
void Blame::charge_active(const Span& span, const Excess& excess, Window& window,
                          BlamedSpan& blamed) {
  const auto kind = culprit_of(span.kind);
  if (!kind) return;
  std::vector<PauseIn> pauses;
  if (!layout_.pauses.empty()) pauses = pauses_in(pauses_, span);
  std::int64_t used = 0, at = span.begin_ns, stalled = 0, always = 0;
  const auto active = [&](std::int64_t until) {
    const auto part = [&](std::int64_t from, std::int64_t to) {  // of the active time
      return overlap(at + std::max<std::int64_t>(0, from - used),
                     std::min(until, at + std::max<std::int64_t>(0, to - used)), window.begin_ns,
                     window.end_ns);
    };
    const std::int64_t whole = span.length_ns();
    if (excess.is_unusual) stalled += part(excess.usual_ns, whole);
    always += part(excess.ordinary_ns, excess.is_unusual ? excess.usual_ns : whole);
    used += until - at;
  };
  const bool is_slow = excess.ordinary_ns < excess.usual_ns;
  for (const PauseIn& pause : pauses) {
    active(pause.begin_ns);
    at = pause.end_ns;
  }
  active(span.end_ns);
  const CulpritKey key{*kind, rank_of(span), *kind == CulpritKind::link ? span.peer : -1};
  const std::int64_t stall_begin_ns = begin_of_stall(span);
  const std::int64_t late = std::max<std::int64_t>(0, used - excess.usual_ns);
  stalled = std::min(
      {stalled, window.left_of_stalls_ns, left_of_stall(key, stall_begin_ns, late, window)});
  always = is_slow ? std::min(always, window.left_ns - stalled) : 0;
  window.take(stalled + always);
  blamed.unusual_ns = stalled + always;
  if (stalled > 0) charge_stall(key, stall_begin_ns, stalled, window);
  if (stalled == 0 && always == 0) return;
  Account& account = accounts_[key];
  account.usual_ns = excess.usual_ns;
  if (is_slow) account.ordinary_ns = excess.ordinary_ns;
  if (always == 0) return;
  (window.is_wait ? account.always_waited_ns : account.always_own_ns) += always;
  if (window.is_wait) charged_[key] += always;
}

// A delay of `ns` makes each rank wait for at most `ns`, in all its waits together.
std::int64_t Blame::left_of_stall(const CulpritKey& key, std::int64_t begin_ns, std::int64_t ns,
                                  const Window& window) const {
  const auto account = accounts_.find(key);
  if (!window.is_wait || account == accounts_.end()) return ns;
  for (const Stall& stall : account->second.stalls) {
    if (stall.begin_ns != begin_ns) continue;
    const auto waited = stall.waited_by.find(window.rank);
    return waited == stall.waited_by.end() ? ns : std::max<std::int64_t>(0, ns - waited->second);
  }
  return ns;
}

void Blame::charge_stall(CulpritKey key, std::int64_t begin_ns, std::int64_t ns,
                         const Window& window) {
  Account& account = accounts_[key];
  auto stall = std::find_if(account.stalls.begin(), account.stalls.end(),
                            [begin_ns](const Stall& s) { return s.begin_ns == begin_ns; });
  if (stall == account.stalls.end()) {
    if (account.stalls.size() >= kStallsAtOnce) {
      close_stall(account, account.stalls.front());
      account.stalls.erase(account.stalls.begin());
    }
    account.stalls.push_back({begin_ns, 0, 0, {}});
    stall = account.stalls.end() - 1;
  }
  (window.is_wait ? stall->waited_ns : stall->own_ns) += ns;
  if (!window.is_wait) return;
  stall->waited_by[window.rank] += ns;
  charged_[key] += ns;
}

// A stall that has cost less than the least time is nobody's fault.
void Blame::close_stall(Account& account, const Stall& stall) const {
  if (stall.waited_ns + stall.own_ns < question_.least_ns) return;
  account.waited_ns += stall.waited_ns;
  account.own_ns += stall.own_ns;
  ++account.count;
}

void Blame::keep_worst(const BlamedWait& wait) {
  for (const auto& [key, ns] : charged_) {
    Account& account = accounts_[key];
    if (ns <= account.worst_ns) continue;
    account.worst_ns = ns;
    account.worst = wait;
  }
}

// ---- the report ----

std::vector<Culprit> Blame::culprits() {
  std::vector<Culprit> culprits;
  const std::int64_t run_ns = last_ns_ - std::max<std::int64_t>(first_ns_, 0);
  for (auto& [key, account] : accounts_) {
    for (const Stall& stall : std::exchange(account.stalls, {})) close_stall(account, stall);
    Culprit culprit;
    std::tie(culprit.kind, culprit.rank, culprit.peer) = key;
    culprit.waited_ns = account.waited_ns;
    culprit.own_ns = account.own_ns;
    culprit.stalls = account.count;
    culprit.usual_ns = account.usual_ns;
    culprit.always = static_cast<double>(account.always_waited_ns) >=
                         kLeastAlways * static_cast<double>(run_ns) &&
                     account.always_waited_ns >= question_.least_ns;
    if (culprit.always) {
      culprit.waited_ns += account.always_waited_ns;
      culprit.own_ns += account.always_own_ns;
      culprit.usual_ns = account.ordinary_ns;
    }
    if (culprit.stalls == 0 && !culprit.always) continue;
    culprit.share = waited_ns_ > 0
                        ? static_cast<double>(culprit.waited_ns) / static_cast<double>(waited_ns_)
                        : 0;
    culprit.worst = std::move(account.worst);
    culprits.push_back(std::move(culprit));
  }
  std::stable_sort(culprits.begin(), culprits.end(), [](const Culprit& a, const Culprit& b) {
    return std::tie(a.waited_ns, a.own_ns) > std::tie(b.waited_ns, b.own_ns);
  });
  return culprits;
}

BlameReport Blame::report() {
  if (!in_second_pass_) start_second_pass();
  BlameReport report;
  report.question = question_;
  report.run_ns = first_ns_ < 0 ? 0 : last_ns_ - first_ns_;
  report.waited_ns = waited_ns_;
  report.waits = waits_;
  report.last_step = last_step_;
  report.culprits = culprits();
  report.steps = std::move(steps_);
  if (question_.about == BlameQuestion::About::step)
    std::sort(report.steps.begin(), report.steps.end(),
              [](const BlamedStep& a, const BlamedStep& b) { return a.rank < b.rank; });
  if (causes_->cut_short() > 0)
    report.notes.push_back(std::to_string(causes_->cut_short()) +
                           " waits were so long that their causes are known only in part");
  return report;
}

BlameReport blame(MergedTrace& trace, const BlameQuestion& question) {
  Blame blame(layout_of(trace), question);
  trace.rewind();
  while (const TraceRecord* record = trace.next()) blame.learn(*record);
  trace.rewind();
  while (const TraceRecord* record = trace.next()) blame.judge(*record);
  BlameReport report = blame.report();
  report.missing = trace.missing();
  return report;
}

}  // namespace grapevine
