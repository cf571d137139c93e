#include "apps/console/text/table.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <ostream>
#include <string_view>
#include <utility>

#include "apps/console/text/display_width.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

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

}  // namespace

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

}  // namespace grapevine
