#include "apps/console/text/progress_bar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/console/text/display_width.hpp"
#include "apps/console/text/figures.hpp"

namespace grapevine {
namespace {

constexpr Duration kMarkInterval = std::chrono::milliseconds(500);
constexpr std::size_t kMarks = 20;  // a window of ten seconds
constexpr int kMinBar = 8;
constexpr int kMaxBar = 40;

std::string repeat(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

std::string bar(double fraction, int width, const TerminalStyle& style) {
  const int full = std::clamp(static_cast<int>(fraction * width), 0, width);
  const char* on = style.unicode ? "━" : "#";
  const char* off = style.unicode ? "─" : ".";
  const std::string done = repeat(on, full);
  return (style.color ? "\x1b[32m" + done + "\x1b[0m" : done) + repeat(off, width - full);
}

std::string step_text(const RunProgress& progress) {
  if (progress.steps <= 0) return "step " + format_count(progress.step);
  return format_count(progress.step) + "/" + format_count(progress.steps);
}

std::string loss_text(double loss) {
  return std::isfinite(loss) ? "loss " + format_number(loss, 4) : "";
}

std::string rate_text(double per_second) {
  return std::isfinite(per_second) && per_second > 0 ? format_rate(per_second) + " samples/s" : "";
}

double fraction_of(const RunProgress& progress) {
  if (progress.steps <= 0) return 0;
  return std::clamp(static_cast<double>(progress.step) / static_cast<double>(progress.steps), 0.0,
                    1.0);
}

std::string percent_text(const RunProgress& progress) {
  if (progress.steps <= 0) return "";
  std::string text = fmt::format("{:.0f}%", std::floor(100 * fraction_of(progress)));
  if (text.size() < 4) text.insert(0, 4 - text.size(), ' ');  // "  7%": the bar must not wander
  return text;
}

std::string left_text(const RunProgress& progress, double steps_per_second) {
  if (progress.steps <= 0 || !(steps_per_second > 0)) return "";
  const double seconds = static_cast<double>(progress.steps - progress.step) / steps_per_second;
  // Beyond a year the estimate has no value, and might overflow a Duration.
  constexpr double kYear = 365.0 * 24 * 3600;
  if (seconds < 0 || seconds > kYear) return "";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  return "left " +
         (whole < 60 ? std::to_string(whole) + "s" : format_duration(std::chrono::seconds(whole)));
}

std::string epoch_text(const RunProgress& progress) {
  if (progress.epochs <= 0) return "";
  const bool whole = progress.epochs == std::floor(progress.epochs);
  return fmt::format("epoch {:.1f}/{:.{}f}", std::min(progress.epoch, progress.epochs),
                     progress.epochs, whole ? 0 : 1);
}

std::string accuracy_text(double accuracy) {
  return std::isfinite(accuracy) ? "accuracy " + format_number(accuracy, 3) : "";
}

std::string join(const std::vector<std::string>& parts) {
  std::string result;
  for (const std::string& part : parts) {
    if (!part.empty()) result += (result.empty() ? "" : "  ") + part;
  }
  return result;
}

}  // namespace

ProgressBar::ProgressBar(std::ostream& out, ProgressOptions options)
    : out_(out),
      options_(std::move(options)),
      begin_{options_.now(), options_.start.step, options_.start.samples},
      progress_(options_.start),
      marks_{begin_},
      last_drawn_(begin_.time) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::update(const RunProgress& progress) {
  if (finished_) return;
  const bool new_phase = !progress.phase.empty() && progress.phase != progress_.phase;
  progress_ = progress;
  const Timestamp now = options_.now();
  remember(now);
  // A terminal shows progress at once; a log does not need a line without figures.
  const bool first = options_.style.redraw && !drawn_;
  const Duration interval =
      options_.style.redraw ? options_.redraw_interval : options_.line_interval;
  if (!first && !new_phase && now - last_drawn_ < interval) return;
  last_drawn_ = now;
  draw();
}

void ProgressBar::remember(Timestamp now) {
  const Mark mark{now, progress_.step, progress_.samples};
  // The newest mark moves with time until it is due to stay.
  if (marks_.size() > 1 && now - marks_[marks_.size() - 2].time < kMarkInterval) {
    marks_.back() = mark;
  } else {
    marks_.push_back(mark);
  }
  if (marks_.size() > kMarks) marks_.pop_front();
}

void ProgressBar::draw() {
  drawn_ = true;
  if (!options_.style.redraw) {
    out_ << line(std::numeric_limits<int>::max()) << std::endl;
    return;
  }
  visible_ = true;
  // One column stays free: some terminals wrap as soon as the last one is written.
  out_ << '\r' << line(std::max(1, options_.style.columns() - 1)) << "\x1b[K" << std::flush;
}

void ProgressBar::clear() {
  if (!visible_) return;
  visible_ = false;
  out_ << "\r\x1b[K" << std::flush;
}

void ProgressBar::finish() {
  if (finished_) return;
  clear();
  finished_ = true;
  out_ << final_line() << std::endl;
}

std::string ProgressBar::line(int columns) const {
  const double seconds = to_seconds(marks_.back().time - marks_.front().time);
  const auto per_second = [&](std::int64_t difference) {
    return seconds > 0 ? static_cast<double>(difference) / seconds : 0.0;
  };
  const double steps_per_second = per_second(marks_.back().step - marks_.front().step);
  const double samples_per_second = per_second(marks_.back().samples - marks_.front().samples);
  std::vector<std::string> parts{label(),
                                 percent_text(progress_),
                                 "",  // the bar
                                 step_text(progress_),
                                 epoch_text(progress_),
                                 rate_text(samples_per_second),
                                 loss_text(progress_.loss),
                                 accuracy_text(progress_.accuracy),
                                 left_text(progress_, steps_per_second)};
  if (!progress_.phase.empty())
    return truncate_to_width(join({label(), percent_text(progress_), progress_.phase}), columns);
  // Removed first where room is short: rate, label, loss, epoch, the bar, time left, accuracy,
  // steps; percent stays.
  const bool has_bar = options_.style.redraw && progress_.steps > 0;
  constexpr std::array<std::size_t, 7> kSacrifice{5, 0, 6, 4, 8, 7, 3};
  constexpr std::size_t kBeforeTheBar = 4;
  for (std::size_t i = 0; i < kSacrifice.size(); ++i) {
    const int needed = has_bar && i < kBeforeTheBar ? kMinBar + 2 : 0;
    if (display_width(join(parts)) + needed <= columns) break;
    if (kSacrifice[i] != 3 || progress_.steps > 0) parts[kSacrifice[i]].clear();
  }
  const int room = columns - display_width(join(parts)) - 2;
  if (!has_bar || room < kMinBar) return truncate_to_width(join(parts), columns);
  parts[2] = bar(fraction_of(progress_), std::min(room, kMaxBar), options_.style);
  return join(parts);
}

std::string ProgressBar::final_line() const {
  const Duration elapsed = options_.now() - begin_.time;
  const double seconds = to_seconds(elapsed);
  const double rate =
      seconds > 0 ? static_cast<double>(progress_.samples - begin_.samples) / seconds : 0;
  return join({label(), step_text(progress_), rate_text(rate), loss_text(progress_.loss),
               accuracy_text(progress_.accuracy), "in " + format_duration(elapsed)});
}

}  // namespace grapevine
