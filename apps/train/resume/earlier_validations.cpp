#include "apps/train/resume/earlier_validations.hpp"

#include <cmath>
#include <fstream>

#include "apps/plot/metrics_table.hpp"

namespace grapevine {

std::map<Epoch, Evaluation> earlier_validations(const std::filesystem::path& metrics, Epoch end) {
  std::map<Epoch, Evaluation> found;
  std::ifstream rows(metrics);
  const auto table = MetricsTable::read(rows, metrics.string(), {"val_loss", "val_top1"});
  if (!table) return found;
  const std::vector<double>&epochs = table->column("epoch"), &losses = table->column("val_loss"),
        &accuracies = table->column("val_top1");
  for (std::size_t row = 0; row < table->rows(); ++row) {
    if (std::isnan(losses[row]) && std::isnan(accuracies[row])) continue;  // of a step
    const auto epoch = static_cast<Epoch>(epochs[row]);
    if (epoch >= end) continue;
    Evaluation evaluation;
    evaluation.loss = losses[row];
    evaluation.top1 = accuracies[row];
    found[epoch] = evaluation;
  }
  return found;
}

}  // namespace grapevine
