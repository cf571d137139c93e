#include "apps/console/console.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <sstream>

#include "messages/check.hpp"

namespace grapevine {
namespace {

constexpr Duration kMarkInterval = std::chrono::milliseconds(500);
constexpr std::size_t kMarks = 20;  // a window of ten seconds
constexpr int kMinBar = 8;
constexpr int kMaxBar = 40;
constexpr int kMinColumns = 20;  // below this a window size is not to be believed

std::string printf_string(const char* format, int decimals, double value) {
  std::array<char, 400> text{};  // a double in %f takes up to 309 digits
  std::snprintf(text.data(), text.size(), format, decimals, value);
  return text.data();
}

// Divides by 1000 until three figures are left in front of the point. `index` of the unit is chosen
// after rounding, so that 999,999 is "1.0M" and never "1000k".
std::pair<std::string, std::size_t> scaled(double value, std::size_t units) {
  std::size_t index = 0;
  while (index + 1 < units && value >= 999.5) {
    value /= 1000;
    ++index;
  }
  const int decimals = index > 0 && value < 99.95 ? 1 : 0;
  return {printf_string("%.*f", decimals, value), index};
}

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

CodePoint decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {lead, 1, false};
  char32_t value = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {lead, 1, false};
    value = (value << 6) | (byte(i) & 0x3fu);
  }
  return {value, bytes, true};
}

struct Range {
  char32_t first;
  char32_t last;
};

// The C library's wcwidth() knows these too, but only under a UTF-8 locale that was set.
constexpr std::array<Range, 7> kZeroWidth{{{0x300, 0x36f},
                                           {0x483, 0x489},
                                           {0x591, 0x5bd},
                                           {0x200b, 0x200f},
                                           {0x20d0, 0x20ff},
                                           {0xfe00, 0xfe0f},
                                           {0xfe20, 0xfe2f}}};
constexpr std::array<Range, 8> kDoubleWidth{{{0x1100, 0x115f},
                                             {0x2e80, 0x303e},
                                             {0x3041, 0xa4cf},
                                             {0xac00, 0xd7a3},
                                             {0xf900, 0xfaff},
                                             {0xff00, 0xff60},
                                             {0x1f300, 0x1faff},
                                             {0x20000, 0x3fffd}}};

template <std::size_t N>
bool within(const std::array<Range, N>& ranges, char32_t value) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Range& r) { return value >= r.first && value <= r.last; });
}

int width_of(const CodePoint& point) {
  if (!point.valid) return 1;
  if (within(kZeroWidth, point.value)) return 0;
  return within(kDoubleWidth, point.value) ? 2 : 1;
}

bool in_unit(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalpha(byte) != 0 || c == '%' || c == '/' || byte >= 0x80;
}

// Removes digits, with commas among them, from the front. False where there is none.
bool skip_digits(std::string_view& text) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  if (text.empty() || !digit(text[0])) return false;
  while (!text.empty() && (digit(text[0]) || text[0] == ',')) text.remove_prefix(1);
  return true;
}

bool skip_one_of(std::string_view& text, std::string_view characters) {
  if (text.empty() || characters.find(text[0]) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// A number with its unit attached: "-1.5e-3", "97.5%", "12.3k", "250ms".
bool is_number_word(std::string_view word) {
  skip_one_of(word, "+-");
  if (!skip_digits(word)) return false;
  if (skip_one_of(word, ".") && !skip_digits(word)) return false;
  std::string_view exponent = word;
  if (skip_one_of(exponent, "eE")) {
    skip_one_of(exponent, "+-");
    if (skip_digits(exponent)) word = exponent;
  }
  return std::all_of(word.begin(), word.end(), in_unit);
}

bool is_neutral(std::string_view cell) { return cell.empty() || cell == "-"; }

// A number and its unit: "1m 03s", "12.3k samples/s".
bool is_figure(std::string_view cell) {
  bool first = true;
  while (true) {
    const std::size_t end = std::min(cell.find(' '), cell.size());
    const std::string_view word = cell.substr(0, end);
    const bool unit = !first && !word.empty() && std::all_of(word.begin(), word.end(), in_unit);
    if (!unit && !is_number_word(word)) return false;
    if (end == cell.size()) return true;
    cell.remove_prefix(end + 1);
    first = false;
  }
}

std::string printable(std::string cell) {
  for (char& c : cell) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return cell;
}

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
  std::string text = printf_string("%.*f%%", 0, std::floor(100 * fraction_of(progress)));
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
  return printf_string("epoch %.*f/", 1, std::min(progress.epoch, progress.epochs)) +
         printf_string("%.*f", whole ? 0 : 1, progress.epochs);
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

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 7> kUnits{"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  const auto [figure, unit] = scaled(static_cast<double>(bytes), kUnits.size());
  return figure + " " + kUnits[unit];
}

std::string format_duration(Duration duration) {
  // The most negative duration has no positive twin; one nanosecond in 292 years is not missed.
  if (duration == Duration::min()) duration += Duration(1);
  if (duration < Duration::zero()) return "-" + format_duration(-duration);
  const double seconds = to_seconds(duration);
  if (duration == Duration::zero()) return "0s";
  if (seconds < 999.5e-9) return std::to_string(duration.count()) + "ns";
  if (seconds < 999.5e-6) return printf_string("%.*fµs", 0, seconds * 1e6);
  if (seconds < 0.9995) return printf_string("%.*fms", 0, seconds * 1e3);
  if (seconds < 59.95) return printf_string("%.*fs", 1, seconds);
  const auto two = [](std::int64_t high, const char* high_unit, std::int64_t low,
                      const char* low_unit) {
    return std::to_string(high) + high_unit + (low < 10 ? " 0" : " ") + std::to_string(low) +
           low_unit;
  };
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return two(whole / 60, "m", whole % 60, "s");
  const std::int64_t minutes = whole / 60;
  if (minutes < 24 * 60) return two(minutes / 60, "h", minutes % 60, "m");
  return two(minutes / (24 * 60), "d", minutes / 60 % 24, "h");
}

std::string format_count(std::int64_t count) {
  std::string text = std::to_string(count);
  const std::size_t sign = count < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > sign + 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

std::string format_rate(double per_second) {
  static constexpr std::array<const char*, 6> kUnits{"", "k", "M", "G", "T", "P"};
  if (!std::isfinite(per_second)) return "-";
  if (per_second < 0) return "-" + format_rate(-per_second);
  if (per_second < 9.995) return printf_string("%.*f", 2, per_second);
  if (per_second < 99.95) return printf_string("%.*f", 1, per_second);
  const auto [figure, unit] = scaled(per_second, kUnits.size());
  return figure + kUnits[unit];
}

std::string format_number(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  constexpr double kWidest = 1e6;  // of a column
  if (std::abs(value) < kWidest) return printf_string("%.*f", decimals, value);
  return printf_string("%.*g", std::max(decimals, 3), value);
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    width += width_of(point);
    text.remove_prefix(point.bytes);
  }
  return width;
}

std::string truncate_to_width(std::string_view text, int columns) {
  std::size_t end = 0;
  for (int width = 0; end < text.size();) {
    const CodePoint point = decode_utf8(text.substr(end));
    width += width_of(point);
    if (width > columns) break;
    end += point.bytes;
  }
  return std::string(text.substr(0, end));
}

std::vector<std::string> wrapped_lines(const std::string& text, int columns,
                                       const std::string& indent) {
  const std::size_t first_word = std::min(text.find_first_not_of(' '), text.size());
  std::vector<std::string> lines;
  std::string line = text.substr(0, first_word);
  bool has_word = false;
  std::istringstream words(text.substr(first_word));
  for (std::string word; std::getline(words, word, ' '); has_word = true) {
    if (has_word && display_width(line + " " + word) > columns) {
      lines.push_back(std::move(line));
      line = indent + word;
    } else {
      line += (has_word ? " " : "") + word;
    }
  }
  lines.push_back(std::move(line));
  return lines;
}

TerminalStyle terminal_style(bool terminal, const std::function<const char*(const char*)>& lookup) {
  const auto get = [&](const char* name) {
    const char* value = lookup(name);
    return std::string(value == nullptr ? "" : value);
  };
  TerminalStyle style;
  const std::string term = get("TERM");
  style.redraw = terminal && !term.empty() && term != "dumb";
  style.color = style.redraw && get("NO_COLOR").empty();
  // The first of the three that is set decides (POSIX).
  std::string locale = get("LC_ALL");
  if (locale.empty()) locale = get("LC_CTYPE");
  if (locale.empty()) locale = get("LANG");
  for (char& c : locale) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  style.unicode =
      locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  return style;
}

TerminalStyle detect_terminal(int descriptor) {
  TerminalStyle style = terminal_style(
      isatty(descriptor) == 1, [](const char* name) { return std::getenv(name); });  // NOLINT
  style.columns = [descriptor] {
    winsize size{};
    if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col >= kMinColumns) {
      return static_cast<int>(size.ws_col);
    }
    return 80;
  };
  return style;
}

Table::Table(std::vector<std::string> header) { add_row(std::move(header)); }

void Table::add_row(std::vector<std::string> cells) {
  GRAPEVINE_CHECK(rows_.empty() || cells.size() == rows_[0].size(), "a row of ", cells.size(),
                  " cells");
  for (std::string& cell : cells) cell = printable(std::move(cell));
  rows_.push_back(std::move(cells));
}

std::string Table::to_string() const {
  const std::size_t columns = rows_[0].size();
  std::vector<int> width(columns, 0);
  std::vector<bool> right(columns, rows_.size() > 1);
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      width[c] = std::max(width[c], display_width(rows_[r][c]));
      if (r > 0 && !is_neutral(rows_[r][c]) && !is_figure(rows_[r][c])) right[c] = false;
    }
  }
  std::string text;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string padding(width[c] - display_width(cells[c]), ' ');
      line += (c > 0 ? "  " : "") + (right[c] ? padding + cells[c] : cells[c] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  std::vector<std::string> rule;
  for (const int w : width) rule.emplace_back(w, '-');
  add_line(rows_[0]);
  add_line(rule);
  for (std::size_t r = 1; r < rows_.size(); ++r) add_line(rows_[r]);
  return text;
}

std::ostream& operator<<(std::ostream& out, const Table& table) { return out << table.to_string(); }

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
