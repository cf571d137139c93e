// next_row: lines of a table that a program for tables may have written anew.
#pragma once
#include <istream>
#include <string>

namespace grapevine {

// The next line without its end, LF or CRLF; false at the end of `rows`. A last line without an end
// is returned, too: rows.eof() is true then.
inline bool next_row(std::istream& rows, std::string& line) {
  if (!std::getline(rows, line)) return false;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

}  // namespace grapevine
