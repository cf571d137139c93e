#include "apps/evaluate/evaluate_command.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "actors/record/files.hpp"
#include "apps/console/json_text.hpp"
#include "apps/console/text/figures.hpp"
#include "apps/console/text/table.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/evaluate/confusion_figure.hpp"
#include "apps/evaluate/evaluated_model.hpp"
#include "apps/evaluate/model_figures.hpp"
#include "apps/plot/figure_file.hpp"
#include "apps/plot/gnuplot.hpp"
#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "gpu/device.hpp"
#include "gpu/model/objective.hpp"
#include "gpu/model/precision.hpp"
#include "gpu/threads/math_threads.hpp"
#include "messages/text/names.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kLargestEvaluationBatch = 1 << 20;
constexpr std::size_t kShownClasses = 20;

struct EvaluateOptions {
  std::string given;
  std::string data;   // empty: that of the run
  std::string model;  // empty: that of the run
  std::string loss;   // empty: that of the run
  std::string split = "test";
  std::int64_t batch_size = 0;  // 0: by the size of the samples
  std::int64_t seed = 1;        // if it is not given, that of the run
  std::string device = "auto";
  std::int32_t threads = 0;
  std::string confusion;
  bool json = false;
};

double ratio_of(std::int64_t part, std::int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : std::nan("");
}

std::string class_name(const DataInfo& info, std::size_t number) {
  return number < info.class_names.size() ? info.class_names[number] : std::to_string(number);
}

ordered_json classes_json(const ModelFigures& figures, const DataInfo& info) {
  ordered_json classes = ordered_json::array();
  for (std::size_t i = 0; i < figures.labels.size(); ++i)
    classes.push_back({{"class", i},
                       {"name", class_name(info, i)},
                       {"labels", figures.labels[i]},
                       {"recall", json_number(ratio_of(figures.hits[i], figures.labels[i]))},
                       {"precision", json_number(ratio_of(figures.hits[i], figures.taken[i]))}});
  return classes;
}

ordered_json confusion_json(const at::Tensor& confusion) {
  ordered_json rows = ordered_json::array();
  for (std::int64_t i = 0; i < confusion.size(0); ++i) {
    const auto* row = confusion.data_ptr<std::int64_t>() + i * confusion.size(1);
    rows.push_back(std::vector<std::int64_t>(row, row + confusion.size(1)));
  }
  return rows;
}

ordered_json figures_as_json(const EvaluateOptions& options, const ModelFigures& figures,
                             const DataInfo& info) {
  ordered_json object = {{"model", options.given},
                         {"data", options.data},
                         {"split", options.split},
                         {"samples", figures.samples},
                         {"loss", json_number(figures.loss)},
                         {"top1", json_number(figures.top1)},
                         {"top5", json_number(figures.top5)}};
  if (info.task == Task::classification) object["classes"] = classes_json(figures, info);
  if (figures.confusion.defined()) object["confusion"] = confusion_json(figures.confusion);
  return object;
}

// The classes that are recognised worst, where there are many.
std::string classes_table(const ModelFigures& figures, const DataInfo& info) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < figures.labels.size(); ++i)
    if (figures.labels[i] > 0) order.push_back(i);
  const bool many = order.size() > kShownClasses;
  const auto recall = [&](std::size_t i) { return ratio_of(figures.hits[i], figures.labels[i]); };
  if (many) {
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return recall(a) < recall(b); });
    order.resize(kShownClasses);
  }
  Table table({"class", "labels", "recall", "precision"});
  for (const std::size_t i : order)
    table.add_row({class_name(info, i), format_count(figures.labels[i]),
                   format_number(recall(i), 4),
                   format_number(ratio_of(figures.hits[i], figures.taken[i]), 4)});
  return (many ? fmt::format("\nthe {} classes with the lowest recall; --json has all\n",
                             kShownClasses)
               : "\n") +
         table.to_string();
}

std::string figures_as_text(const ModelFigures& figures, const DataInfo& info) {
  Table table({"samples", "loss", "top-1", "top-5"});
  table.add_row({format_count(figures.samples), format_number(figures.loss, 4),
                 format_number(figures.top1, 4), format_number(figures.top5, 4)});
  return table.to_string() +
         (info.task == Task::classification ? classes_table(figures, info) : "");
}

class EvaluateCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("trained", o_.given, "a model file, or the folder of a run")->required();
    add_option(app, "data", o_.data,
               fmt::format("data set, NAME[:PATH], by default that of the run: {}",
                           fmt::join(data_names(), " ")));
    add_option(app, "model", o_.model,
               fmt::format("built-in model of a file with tensors only: {}",
                           fmt::join(model_names(), " ")));
    add_option(app, "split", o_.split, "test | train");
    add_option(app, "loss", o_.loss,
               "cross-entropy | mse | bce [that of the run, or what fits the data]");
    add_option(app, "confusion", o_.confusion, "draw the confusion matrix: FILE.svg or FILE.png");
    add_option(app, "batch-size", o_.batch_size,
               "samples in one pass; 0: at most 256, fewer of large samples");
    add_option(app, "seed", o_.seed,
               "of data that is drawn for each run (hyperplane) [that of the run]");
    add_option(app, "device", o_.device, "cpu | cuda[:i] | auto");
    add_option(app, "threads", o_.threads, "0: one for each core");
    add_switch(app, "json", o_.json, "print one JSON object, with the figures of each class");
    add_option(app, "config", config_, "TOML file with options");
    app_ = &app;
  }

  Expected<void> run(Console& console) override {
    if (auto read = read_config_file(*app_, config_); !read) return read;
    if (auto checked = check_options(); !checked) return checked;
    auto source = find_model(o_.given);
    if (!source) return source.error();
    if (!o_.model.empty()) source->model = o_.model;
    if (o_.data.empty()) o_.data = source->data;
    if (o_.data.empty())
      return bad_input("no data: " + o_.given + " does not name any, so give --data NAME[:PATH]");
    const bool same_data = o_.data == source->data;
    if (o_.loss.empty() && same_data) o_.loss = source->loss;
    if (same_data)
      if (auto taken = take_data_of(*source); !taken) return taken;
    return evaluate(*source, console);
  }

 private:
  Expected<void> check_options() {
    if (o_.split != "test" && o_.split != "train")
      return unknown_name("--split", o_.split, {"test", "train"});
    if (o_.batch_size < 0 || o_.batch_size > kLargestEvaluationBatch)
      return bad_input(
          fmt::format("--batch-size {}: expected 0..{}", o_.batch_size, kLargestEvaluationBatch));
    if (o_.threads < 0 || o_.threads > 1024)
      return bad_input(fmt::format("--threads {}: expected 0..1024", o_.threads));
    if (o_.seed < 0) return bad_input(fmt::format("--seed {}: expected 0 or more", o_.seed));
    if (o_.confusion.empty()) return {};
    const auto format = figure_format_of("--confusion", o_.confusion);
    if (!format) return format.error();
    format_ = *format;
    if (auto free = check_figure_path("--confusion", o_.confusion); !free) return free;
    return find_gnuplot();
  }

  // The test samples that the run had: another seed draws other data.
  Expected<void> take_data_of(const ModelSource& source) {
    skip_damaged_ = source.skip_damaged;
    if (source.seed.empty() || app_->get_option("--seed")->count() > 0) return {};
    o_.seed = number_in<decltype(o_.seed)>(source.seed).value_or(-1);
    if (o_.seed >= 0) return {};
    return bad_input(o_.given + ": the seed in its job.toml is '" + source.seed +
                     "', which is no whole number from 0 on: give --seed");
  }

  Expected<void> evaluate(const ModelSource& source, Console& console) {
    limit_math_threads(o_.threads > 0 ? o_.threads
                                      : std::max(1U, std::thread::hardware_concurrency()));
    FigureOptions options;
    const auto loss = parse_loss(o_.loss.empty() ? "auto" : o_.loss);
    if (!loss) return loss.error();
    options.loss = *loss;
    options.split = o_.split == "test" ? Split::test : Split::train;
    const auto device = choose_device(o_.device, visible_gpus(), 0);
    if (!device) return device.error();
    options.device = *device;
    set_math_mode(Precision::fp32, /*benchmark=*/false);
    DataOptions data_options;
    data_options.seed = static_cast<std::uint64_t>(o_.seed);
    data_options.skip_damaged = skip_damaged_;
    auto made = make_data_set(o_.data, data_options);
    if (!made) return made.error();
    const auto data = skip_damaged_ ? without_damaged(*std::move(made)) : *std::move(made);
    const DataInfo& info = data->info();
    options.batch_size = o_.batch_size > 0 ? o_.batch_size : evaluated_samples(info, 1);
    const auto model = load_model(source, info);
    if (!model) return model.error();
    const auto figures = figures_of_model(**model, *data, options);
    if (!figures) return figures.error();
    if (!o_.confusion.empty())
      if (auto drawn = draw(*figures, info); !drawn) return drawn;
    if (o_.json)
      console.out << json_text(figures_as_json(o_, *figures, info)) << '\n';
    else
      console.out << figures_as_text(*figures, info);
    return {};
  }

  Expected<void> draw(const ModelFigures& figures, const DataInfo& info) const {
    if (!figures.confusion.defined())
      return bad_input("--confusion " + o_.confusion + ": data '" + info.name + "' has " +
                       (info.task == Task::regression ? "no classes" : "too many classes") +
                       ": leave it out");
    const auto bytes =
        run_gnuplot(confusion_script(figures.confusion, info.class_names, format_, o_.data));
    if (!bytes) return bytes.error();
    const auto figure = signed_figure(format_, *bytes);
    if (!figure) return figure.error();
    return write_file_atomically(o_.confusion, *figure);
  }

  EvaluateOptions o_;
  bool skip_damaged_ = false;  // as the run did
  FigureFormat format_ = FigureFormat::svg;
  std::string config_;
  CLI::App* app_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> make_evaluate_command() { return std::make_unique<EvaluateCommand>(); }

}  // namespace grapevine
