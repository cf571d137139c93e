// MetricsTable: the columns of a metrics.csv.
#pragma once
#include <cstddef>
#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

// The file may still be growing, or its process may have been killed: a last line without a newline
// is left out, and so is a line that is not a row.
class MetricsTable {
 public:
  // `columns` besides rank, epoch, step and time_s, which are always read. `name`: the file's, for
  // errors. Errors (bad_input): not such a file, one of the columns is missing, no rows.
  static Expected<MetricsTable> read(std::istream& in, const std::string& name,
                                     const std::vector<std::string>& columns);

  std::size_t rows() const { return rows_; }
  // NaN: an empty cell. REQUIRES: a column that was read.
  const std::vector<double>& column(const std::string& name) const { return columns_.at(name); }
  // Of a validation, and not of a step: a cell of a column val_… is not empty.
  bool is_validation(std::size_t row) const { return validations_[row]; }
  // Whole lines that are not rows.
  std::int64_t skipped() const { return skipped_; }

 private:
  std::map<std::string, std::vector<double>> columns_;
  std::vector<bool> validations_;  // by row
  std::size_t rows_ = 0;
  std::int64_t skipped_ = 0;
};

}  // namespace grapevine
