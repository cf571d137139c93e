#include "apps/plot/metrics_table.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "apps/console/next_row.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

constexpr std::string_view kMetricsStart = "rank,epoch,step,";
constexpr std::size_t kFirstColumns = 3;  // those of kMetricsStart: every row has them
constexpr std::string_view kValidation = "val_";

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  std::size_t begin = 0;
  for (std::size_t comma; (comma = line.find(',', begin)) != line.npos; begin = comma + 1)
    cells.push_back(line.substr(begin, comma - begin));
  cells.push_back(line.substr(begin));
  return cells;
}

// NaN for an empty cell; nothing where the text is not a number.
std::optional<double> value_of(std::string_view cell) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (cell.empty()) return kNan;
  const auto value = number_in<double>(cell);
  return value && !std::isfinite(*value) ? kNan : value;
}

// The first line, or nothing: a file of another kind may have no lines at all.
std::optional<std::string> read_first_line(std::istream& in) {
  std::string line(kMetricsStart.size(), '\0');
  in.read(line.data(), static_cast<std::streamsize>(line.size()));
  std::string rest;
  if (!in || line != kMetricsStart || !next_row(in, rest) || in.eof()) return std::nullopt;
  return line + rest;
}

// A column that is read, and its place in a row.
struct ReadColumn {
  std::size_t cell;
  std::vector<double>* values;
};

// The numbers of a row; false where the cells are none.
bool read_row(const std::vector<std::string_view>& cells, std::size_t width,
              const std::vector<ReadColumn>& columns, std::vector<double>& row) {
  if (cells.size() != width) return false;
  for (std::size_t i = 0; i < kFirstColumns; ++i)
    if (cells[i].empty()) return false;
  row.clear();
  for (const ReadColumn& column : columns) {
    const auto value = value_of(cells[column.cell]);
    if (!value) return false;
    row.push_back(*value);
  }
  return true;
}

}  // namespace

Expected<MetricsTable> MetricsTable::read(std::istream& in, const std::string& name,
                                          const std::vector<std::string>& columns) {
  const auto header = read_first_line(in);
  if (!header)
    return bad_input(name + ": does not begin as the metrics.csv of a run does (" +
                     std::string(kMetricsStart) + "…): give the folder of a run");
  const std::vector<std::string_view> names = cells_of(*header);
  MetricsTable table;
  std::vector<ReadColumn> read;
  std::vector<std::string> wanted = {"rank", "epoch", "step", "time_s"};
  wanted.insert(wanted.end(), columns.begin(), columns.end());
  for (const std::string& column : wanted) {
    const auto found = std::find(names.begin(), names.end(), column);
    if (found == names.end())
      return bad_input(name + ": has no column " + column + ": choose another --y");
    const auto [entry, added] = table.columns_.try_emplace(column);
    if (added) read.push_back({static_cast<std::size_t>(found - names.begin()), &entry->second});
  }
  std::vector<std::size_t> validation;  // the cells of the columns val_…
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i].substr(0, kValidation.size()) == kValidation) validation.push_back(i);
  std::vector<double> row;
  for (std::string line; next_row(in, line) && !in.eof();) {
    const std::vector<std::string_view> cells = cells_of(line);
    if (!read_row(cells, names.size(), read, row)) {
      ++table.skipped_;
      continue;
    }
    table.validations_.push_back(
        std::any_of(validation.begin(), validation.end(),
                    [&cells](std::size_t cell) { return !cells[cell].empty(); }));
    for (std::size_t i = 0; i < row.size(); ++i) read[i].values->push_back(row[i]);
    ++table.rows_;
  }
  if (table.rows_ == 0)
    return bad_input(name + ": has no rows: wait for the first step of the run");
  return table;
}

}  // namespace grapevine
