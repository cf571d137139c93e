#include "apps/train/resume/earlier_validations.hpp"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace grapevine {
namespace {

double number_in(const std::string& cell) {
  return cell.empty() ? std::nan("") : std::strtod(cell.c_str(), nullptr);
}

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells(1);
  for (const char c : row) {
    if (c == ',')
      cells.emplace_back();
    else
      cells.back() += c;
  }
  return cells;
}

}  // namespace

std::map<Epoch, Evaluation> earlier_validations(const std::filesystem::path& metrics) {
  std::map<Epoch, Evaluation> found;
  std::ifstream rows(metrics);
  std::string row;
  if (!std::getline(rows, row)) return found;
  const std::size_t columns = cells_of(row).size();
  while (std::getline(rows, row)) {
    const std::vector<std::string> cells = cells_of(row);
    if (cells.size() != columns || columns < 4 || cells[columns - 3].empty()) continue;
    Evaluation evaluation;
    evaluation.loss = number_in(cells[columns - 3]);
    evaluation.top1 = number_in(cells[columns - 2]);
    found[static_cast<Epoch>(number_in(cells[1]))] = evaluation;
  }
  return found;
}

}  // namespace grapevine
