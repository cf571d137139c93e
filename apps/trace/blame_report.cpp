#include "apps/trace/blame_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "apps/console/text/display_width.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kMessagesNamed = 3;  // of a path

double blamed_seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string blamed_time(std::int64_t ns) {
  const double ms = static_cast<double>(ns) / 1e6;
  if (ms >= 10'000) return fmt::format("{:.1f} s", ms / 1e3);
  if (ms >= 10) return fmt::format("{:.0f} ms", ms);
  if (ms >= 0.1) return fmt::format("{:.1f} ms", ms);
  return fmt::format("{:.0f} us", ms * 1e3);
}

const char* name_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::compute:
      return "compute";
    case SpanKind::data:
      return "data";
    case SpanKind::link:
      return "link";
    case SpanKind::server:
      return "server";
    case SpanKind::handling:
      return "handling";
    case SpanKind::timer:
      return "timer";
    case SpanKind::members:
      return "members";
    case SpanKind::start:
      return "start";
  }
  return "";
}

// ---- JSON ----

nlohmann::json json_of(const BlamedSpan& blamed) {
  const Span& span = blamed.span;
  return {{"kind", name_of(span.kind)},
          {"rank", span.rank},
          {"peer", span.peer},
          {"begin_s", blamed_seconds(span.begin_ns)},
          {"seconds", blamed_seconds(span.length_ns())},
          {"usual_seconds", blamed_seconds(blamed.usual_ns)},
          {"inside_seconds", blamed_seconds(blamed.inside_ns)},
          {"unusual_seconds", blamed_seconds(blamed.unusual_ns)},
          {"paused_seconds", blamed_seconds(blamed.paused_ns)},
          {"paused_rank", blamed.paused_rank},
          {"payload", grapevine::name_of(span.payload)},
          {"operation", span.operation},
          {"index", span.index},
          {"step", span.step}};
}

nlohmann::json json_of(const std::vector<BlamedSpan>& spans) {
  nlohmann::json json = nlohmann::json::array();
  for (const BlamedSpan& span : spans) json.push_back(json_of(span));
  return json;
}

nlohmann::json json_of(const BlamedWait& wait) {
  return {{"rank", wait.rank},
          {"step", wait.step},
          {"begin_s", blamed_seconds(wait.begin_ns)},
          {"seconds", blamed_seconds(wait.length_ns())},
          {"left_out", wait.left_out},
          {"path", json_of(wait.path)}};
}

nlohmann::json json_of(const Culprit& culprit) {
  nlohmann::json json = {{"kind", grapevine::name_of(culprit.kind)},
                         {"rank", culprit.rank},
                         {"peer", culprit.peer},
                         {"seconds", blamed_seconds(culprit.waited_ns)},
                         {"share", culprit.share},
                         {"own_seconds", blamed_seconds(culprit.own_ns)},
                         {"stalls", culprit.stalls},
                         {"always_slow", culprit.always},
                         {"usual_seconds", blamed_seconds(culprit.usual_ns)},
                         {"worst", nullptr}};
  if (culprit.worst.length_ns() > 0) json["worst"] = json_of(culprit.worst);
  return json;
}

nlohmann::json json_of(const BlamedStep& step) {
  nlohmann::json waits = nlohmann::json::array();
  for (const BlamedWait& wait : step.waits) waits.push_back(json_of(wait));
  return {{"rank", step.rank},
          {"step", step.step},
          {"begin_s", blamed_seconds(step.begin_ns)},
          {"seconds", blamed_seconds(step.length_ns())},
          {"usual_seconds", blamed_seconds(step.usual_ns)},
          {"waited_seconds", blamed_seconds(step.waited_ns)},
          {"own", json_of(step.own)},
          {"waits", std::move(waits)},
          {"text", sentence_of(step)}};
}

// ---- sentences ----

std::string message_text(const Span& span) {
  const std::string payload = grapevine::name_of(span.payload);
  std::string text = payload.empty() ? "message" : payload;
  const bool has_vowel = std::string("aeiou").find(text.front()) != std::string::npos;
  if (span.index >= 0)
    text += fmt::format(" {}", span.index);
  else
    text = (has_vowel ? "an " : "a ") + text;
  return span.operation < 0 ? text : fmt::format("{} of operation {}", text, span.operation);
}

// What the span did, as in "which …". The usual time is that of the whole span.
std::string verb_text(const BlamedSpan& blamed) {
  const Span& span = blamed.span;
  const std::string usual = fmt::format(" (usual {})", blamed_time(blamed.usual_ns));
  if (blamed.paused_ns > blamed.unusual_ns)
    return "was paused for " + blamed_time(blamed.paused_ns);
  switch (span.kind) {
    case SpanKind::compute:
      return "computed " + blamed_time(span.length_ns()) + usual;
    case SpanKind::data:
      return "waited " + blamed_time(span.length_ns()) + " for its batch" + usual;
    case SpanKind::server:
      return "kept its answer back for " + blamed_time(span.length_ns()) + usual;
    case SpanKind::handling:
      return "was busy with a message or a gradient for " + blamed_time(span.length_ns()) + usual;
    case SpanKind::timer:
      return "waited " + blamed_time(span.length_ns()) + " for a timer";
    case SpanKind::members:
      return fmt::format(
          "waited {} until rank {} was known to be lost and the others continued without it",
          blamed_time(span.length_ns()), span.peer);
    case SpanKind::start:
      return "had not begun, or has left no record of it";
    case SpanKind::link:
      break;
  }
  return "sent it " + blamed_time(span.length_ns()) + " before it arrived" + usual;
}

// The span to which the wait is due: the greatest unusual one, else the longest.
std::size_t reason_of(const std::vector<BlamedSpan>& path) {
  std::size_t best = 0;
  const auto weight = [](const BlamedSpan& span) {
    return std::pair(span.unusual_ns + span.paused_ns, span.inside_ns);
  };
  for (std::size_t i = 1; i < path.size(); ++i)
    if (weight(path[i]) > weight(path[best])) best = i;
  return best;
}

// " for chunk 3 of operation 41 from rank 1, which waited for … from rank 0, which computed …"
std::string path_text(const BlamedWait& wait) {
  if (wait.path.empty()) return "";
  const std::size_t reason = reason_of(wait.path);
  std::vector<const Span*> messages;
  for (std::size_t i = 0; i <= reason; ++i)
    if (wait.path[i].span.kind == SpanKind::link) messages.push_back(&wait.path[i].span);
  std::string text;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const bool is_named = i + 1 < kMessagesNamed || i + 1 == messages.size();
    if (!is_named) {
      if (i + 2 == messages.size())
        text += fmt::format(", and so on over {} more message{}",
                            messages.size() - kMessagesNamed + wait.left_out,
                            messages.size() - kMessagesNamed + wait.left_out == 1 ? "" : "s");
      continue;
    }
    if (i > 0)
      text += i + 1 == messages.size() && i >= kMessagesNamed ? ", back to" : ", which waited for";
    else
      text += " for";
    text += fmt::format(" {} from rank {}", message_text(*messages[i]), messages[i]->rank);
  }
  const BlamedSpan& last = wait.path[reason];
  const Rank at = messages.empty() ? wait.rank : messages.back()->rank;
  const bool is_paused = last.paused_ns > last.unusual_ns;
  const Rank actor = is_paused ? last.paused_rank : last.span.rank;
  text +=
      actor == at ? (messages.empty() ? ": it " : ", which ") : fmt::format("; rank {} ", actor);
  return text + verb_text(last);
}

std::string wait_text(const BlamedWait& wait) {
  return fmt::format("waited {}{}", blamed_time(wait.length_ns()), path_text(wait));
}

std::string broken_text(const std::string& text) {
  constexpr int kColumns = 118;
  return fmt::format("{}\n", fmt::join(wrapped_lines(text, kColumns, "  "), "\n"));
}

std::string place_text(const Culprit& culprit) {
  switch (culprit.kind) {
    case CulpritKind::link:
      return fmt::format("link from rank {} to rank {}", culprit.rank, culprit.peer);
    case CulpritKind::compute:
      return fmt::format("rank {}: computing", culprit.rank);
    case CulpritKind::data:
      return fmt::format("rank {}: its data", culprit.rank);
    case CulpritKind::server:
      return fmt::format("rank {}: serving", culprit.rank);
    case CulpritKind::pause:
      return fmt::format("rank {}: its process was paused", culprit.rank);
    case CulpritKind::loss:
      return fmt::format("rank {}: its loss", culprit.rank);
  }
  return "";
}

std::string culprit_text(const Culprit& culprit) {
  std::string text =
      fmt::format("{:<36} {:>10} {:>6.1f} % {:>10} {:>7}{}\n", place_text(culprit),
                  blamed_time(culprit.waited_ns), 100 * culprit.share, blamed_time(culprit.own_ns),
                  culprit.stalls, culprit.always ? "  always slow" : "");
  const BlamedWait& worst = culprit.worst;
  if (worst.length_ns() > 0)
    text += broken_text(fmt::format("  worst: rank {}, step {}, at {:.3f} s: {}", worst.rank,
                                    worst.step, blamed_seconds(worst.begin_ns), wait_text(worst)));
  return text;
}

std::string culprits_text(const BlameReport& report) {
  std::string text =
      fmt::format("{} waits, {} of all ranks together, in a run of {}\n", report.waits,
                  blamed_time(report.waited_ns), blamed_time(report.run_ns));
  if (report.culprits.empty())
    return text + "no rank, link or server was slower than usual for longer than " +
           blamed_time(report.question.least_ns) + "\n";
  text += fmt::format("{:<36} {:>10} {:>8} {:>10} {:>7}\n", "culprit", "waited", "share", "own",
                      "stalls");
  for (const Culprit& culprit : report.culprits) text += culprit_text(culprit);
  return text;
}

}  // namespace

nlohmann::json json_of(const BlameReport& report) {
  std::vector<std::string> notes = report.missing;
  notes.insert(notes.end(), report.notes.begin(), report.notes.end());
  nlohmann::json json = {{"run_seconds", blamed_seconds(report.run_ns)}, {"notes", notes}};
  if (report.question.about != BlameQuestion::About::all) {
    json["steps"] = nlohmann::json::array();
    for (const BlamedStep& step : report.steps) json["steps"].push_back(json_of(step));
    return json;
  }
  json["waited_seconds"] = blamed_seconds(report.waited_ns);
  json["waits"] = report.waits;
  json["culprits"] = nlohmann::json::array();
  for (const Culprit& culprit : report.culprits) json["culprits"].push_back(json_of(culprit));
  return json;
}

// Its longest wait, or its own gradient where that took longer.
std::string sentence_of(const BlamedStep& step) {
  std::string text = fmt::format("rank {}, step {}: {} (usual {})", step.rank, step.step,
                                 blamed_time(step.length_ns()), blamed_time(step.usual_ns));
  const auto longest = std::max_element(
      step.own.begin(), step.own.end(),
      [](const auto& a, const auto& b) { return a.span.length_ns() < b.span.length_ns(); });
  const bool has_wait = !step.waits.empty();
  const bool waits_longer =
      has_wait &&
      (longest == step.own.end() || step.waits.front().length_ns() >= longest->span.length_ns());
  if (waits_longer) return text + ": " + wait_text(step.waits.front());
  if (longest != step.own.end()) return text + ": " + verb_text(*longest);
  return text;
}

std::string text_of(const BlameReport& report) {
  std::string text;
  if (report.question.about == BlameQuestion::About::all) {
    text = culprits_text(report);
  } else {
    for (const BlamedStep& step : report.steps) text += broken_text(sentence_of(step));
    if (report.steps.empty())
      text = report.question.about == BlameQuestion::About::step
                 ? fmt::format("no rank has finished step {} in this trace\n", report.question.step)
                 : "no rank has finished a step in this trace\n";
  }
  for (const std::string& note : report.notes) text += broken_text("note: " + note);
  return text;
}

}  // namespace grapevine
