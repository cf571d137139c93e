#include "apps/evaluate/model_figures.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>

#include "gpu/torch_error.hpp"

namespace grapevine {
namespace {

std::string tensor_shape(at::IntArrayRef shape) {
  std::ostringstream out;
  out << shape;
  return out.str();
}

std::vector<std::int64_t> numbers(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(end - begin));
  std::iota(all.begin(), all.end(), begin);
  return all;
}

std::vector<std::int64_t> counts_of(const at::Tensor& classes, std::int64_t number) {
  const at::Tensor counts = at::bincount(classes, {}, number).to(at::kLong).cpu();
  return {counts.data_ptr<std::int64_t>(), counts.data_ptr<std::int64_t>() + counts.numel()};
}

void add(std::vector<std::int64_t>& sums, const std::vector<std::int64_t>& more) {
  sums.resize(std::max(sums.size(), more.size()), 0);
  for (std::size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

// `output` [B, classes, …], `target` [B, …].
void add_classes(ModelFigures& figures, const at::Tensor& output, const at::Tensor& target) {
  const std::int64_t classes = output.size(1);
  const at::Tensor guess = output.argmax(1).flatten();
  const at::Tensor label = target.flatten();
  add(figures.labels, counts_of(label, classes));
  add(figures.taken, counts_of(guess, classes));
  add(figures.hits, counts_of(label.masked_select(guess.eq(label)), classes));
  if (classes > kMostConfusedClasses) return;
  const at::Tensor pairs = at::bincount(label * classes + guess, {}, classes * classes)
                               .to(at::kLong)
                               .cpu()
                               .view({classes, classes});
  figures.confusion = figures.confusion.defined() ? figures.confusion + pairs : pairs;
}

void move_to(Model& model, at::Device device) {
  if (device.is_cpu()) return;
  for (auto tensors : {model.parameters(), model.buffers()})
    for (NamedTensor& named : tensors) named.tensor.set_data(named.tensor.to(device));
}

Expected<void> check_output(const at::Tensor& output, const DataInfo& info, std::int64_t batch) {
  const std::vector<std::int64_t> needed = output_shape(info, batch);
  if (output.sizes() == at::IntArrayRef(needed) && output.is_floating_point()) return {};
  return bad_input("the model does not fit data '" + info.name + "': its output is " +
                   tensor_shape(output.sizes()) + " where " + tensor_shape(needed) +
                   " is needed: choose another model or data set");
}

Expected<ModelFigures> evaluate_all(Model& model, const DataSet& data, std::int64_t size,
                                    const FigureOptions& options) {
  const DataInfo& info = data.info();
  const Objective objective(info.task, options.loss);
  ModelFigures figures;
  double top1 = 0, top5 = 0;
  for (std::int64_t begin = 0; begin < size; begin += options.batch_size) {
    const std::int64_t end = std::min(begin + options.batch_size, size);
    auto batch = data.batch(options.split, numbers(begin, end), 0);
    if (!batch) return batch.error();
    const at::Tensor target = batch->target.to(options.device);
    const at::Tensor output = model.forward(batch->input.to(options.device)).to(at::kFloat);
    if (auto fits = check_output(output, info, end - begin); !fits) return fits.error();
    const auto share = static_cast<double>(end - begin) / static_cast<double>(size);
    figures.loss += share * batch_loss(objective, output, target).item<double>();
    const at::Tensor accuracy = accuracy_figures(objective, output, target).cpu();
    top1 += share * accuracy[0].item<double>();
    top5 += share * accuracy[1].item<double>();
    if (info.task == Task::classification) add_classes(figures, output, target);
    figures.samples = end;
  }
  // A ratio of whole numbers, where there are some: a mean over batches differs in its last digits.
  const auto hits = std::accumulate(figures.hits.begin(), figures.hits.end(), std::int64_t{0});
  const auto labels =
      std::accumulate(figures.labels.begin(), figures.labels.end(), std::int64_t{0});
  figures.top1 = labels > 0 ? static_cast<double>(hits) / static_cast<double>(labels) : top1;
  figures.top5 = top5;
  return figures;
}

}  // namespace

Expected<ModelFigures> figures_of_model(Model& model, const DataSet& data,
                                        const FigureOptions& options) {
  const DataInfo& info = data.info();
  if (auto fits = check_objective({info.task, options.loss}, info.name); !fits) return fits.error();
  const bool test = options.split == Split::test;
  const std::int64_t size = test ? info.test_size : info.train_size;
  if (size < 1)
    return bad_input("data '" + info.name + "' has no " + (test ? "test" : "training") +
                     " samples: choose the other --split");
  try {
    const at::NoGradGuard no_grad;
    move_to(model, options.device);
    model.train(false);
    return evaluate_all(model, data, size, options);
  } catch (const std::exception& e) {
    return Error{Errc::failed, "the pass through the model threw: " + one_line(e)};
  }
}

}  // namespace grapevine
