// Table: aligned columns under a header.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

namespace grapevine {

// Columns two spaces apart under a ruled header. A column whose cells are all figures ("12", "1.2
// MB", "1m 03s", "97.5%", "-" or empty) is set right, others left. Control characters in cells are
// shown as '?': a cell is one line and cannot steer the terminal.
// Not thread-safe.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // REQUIRES: as many cells as the header has.
  void add_row(std::vector<std::string> cells);
  std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};
std::ostream& operator<<(std::ostream& out, const Table& table);

}  // namespace grapevine
