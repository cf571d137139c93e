#include "apps/data/data_command.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "apps/console/json_text.hpp"
#include "apps/console/text/figures.hpp"
#include "apps/console/text/table.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/zoo/data.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kCheckedAtOnce = 64;  // samples
constexpr std::size_t kPrintedDamages = 100;

struct Damage {
  Split split = Split::train;
  std::int64_t index = 0;
  std::string what;
};

// What the samples of a split hold.
struct SplitFigures {
  std::int64_t samples = 0, read = 0;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  double sum = 0, squares = 0, values = 0;
  std::vector<std::int64_t> labels;  // by class; empty for regression

  double mean() const { return sum / values; }
  double deviation() const { return std::sqrt(std::max(0.0, squares / values - mean() * mean())); }
};

std::string split_name(Split split) { return split == Split::train ? "train" : "test"; }

void add_batch(SplitFigures& figures, const DataInfo& info, const Batch& batch) {
  const at::Tensor input = batch.input.to(at::kDouble);
  figures.read += input.size(0);
  figures.least = std::min(figures.least, input.min().item<double>());
  figures.most = std::max(figures.most, input.max().item<double>());
  figures.sum += input.sum().item<double>();
  figures.squares += input.square().sum().item<double>();
  figures.values += static_cast<double>(input.numel());
  if (info.task != Task::classification) return;
  const at::Tensor counts = at::bincount(batch.target.flatten(), {}, info.classes);
  figures.labels.resize(static_cast<std::size_t>(counts.numel()), 0);
  for (std::int64_t i = 0; i < counts.numel(); ++i)
    figures.labels[static_cast<std::size_t>(i)] += counts[i].item<std::int64_t>();
}

bool all_finite(const Batch& batch) {
  return batch.input.isfinite().all().item<bool>() && batch.target.isfinite().all().item<bool>();
}

// Nothing where a sample of them cannot be used.
std::optional<Batch> sound_batch(const DataSet& data, Split split,
                                 const std::vector<std::int64_t>& indices) {
  try {
    auto batch = data.batch(split, indices, 0);
    if (!batch || !all_finite(*batch)) return std::nullopt;
    return *std::move(batch);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

SplitFigures check_split(const DataSet& data, Split split, std::vector<Damage>& damages) {
  const DataInfo& info = data.info();
  SplitFigures figures;
  figures.samples = split == Split::train ? info.train_size : info.test_size;
  for (std::int64_t begin = 0; begin < figures.samples; begin += kCheckedAtOnce) {
    std::vector<std::int64_t> indices(
        static_cast<std::size_t>(std::min(kCheckedAtOnce, figures.samples - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    if (const auto batch = sound_batch(data, split, indices)) {
      add_batch(figures, info, *batch);
      continue;
    }
    for (const std::int64_t index : indices) {
      std::string damage = damage_of(data, split, index);
      if (!damage.empty())
        damages.push_back({split, index, std::move(damage)});
      else if (const auto one = sound_batch(data, split, {index}))
        add_batch(figures, info, *one);
    }
  }
  return figures;
}

std::string labels_range(const SplitFigures& figures) {
  if (figures.labels.empty()) return "-";
  const auto [least, most] = std::minmax_element(figures.labels.begin(), figures.labels.end());
  return *least == *most ? format_count(*least)
                         : format_count(*least) + " to " + format_count(*most);
}

ordered_json split_json(const SplitFigures& figures) {
  if (figures.read == 0) return {{"samples", figures.samples}, {"read", 0}};
  return {{"samples", figures.samples}, {"read", figures.read},
          {"least", figures.least},     {"most", figures.most},
          {"mean", figures.mean()},     {"deviation", figures.deviation()},
          {"labels", figures.labels}};
}

std::string shape_of_samples(const DataInfo& info) {
  std::string text;
  for (const std::int64_t side : info.sample_shape)
    text += (text.empty() ? "" : "x") + (side == kTimeSteps ? "steps" : std::to_string(side));
  return text;
}

class DataCommand final : public Command {
 public:
  bool computes() const override { return false; }

  void declare(CLI::App& app) override {
    app.add_option("action", action_, "check")->required();
    app.add_option("data", spec_,
                   fmt::format("data set, NAME[:PATH]: {}", fmt::join(data_specs(), " ")))
        ->required();
    add_option(app, "seed", seed_, "of data that is drawn for each run (hyperplane)");
    add_option(app, "threads", threads_, "threads that decode images");
    add_switch(app, "json", json_, "print one JSON object");
    app.footer("check DATA          reads all samples once; exit code 2 if any is damaged");
  }

  Expected<void> run(Console& console) override {
    if (action_ != "check") return unknown_name("action", action_, {"check"});
    if (seed_ < 0) return bad_input(fmt::format("--seed {}: expected 0 or more", seed_));
    if (threads_ < 1 || threads_ > 256)
      return bad_input(fmt::format("--threads {}: expected 1..256", threads_));
    DataOptions options;
    options.seed = static_cast<std::uint64_t>(seed_);
    options.decode_threads = threads_;
    options.skip_damaged = true;
    const auto data = make_data_set(spec_, options);
    if (!data) return data.error();
    std::vector<Damage> damages;
    const SplitFigures train = check_split(**data, Split::train, damages);
    const SplitFigures test = check_split(**data, Split::test, damages);
    const DataInfo& info = (*data)->info();
    json_ ? print_json(info, train, test, damages, console.out)
          : print(info, train, test, damages, console.out);
    if (damages.empty()) return {};
    return bad_input(fmt::format(
        "data '{}': {} of {} samples {} damaged, named above: repair or remove {}, or train with "
        "--skip-damaged",
        spec_, damages.size(), info.train_size + info.test_size, damages.size() == 1 ? "is" : "are",
        damages.size() == 1 ? "it" : "them"));
  }

 private:
  void print_json(const DataInfo& info, const SplitFigures& train, const SplitFigures& test,
                  const std::vector<Damage>& damages, std::ostream& out) const {
    ordered_json object = {
        {"data", spec_},
        {"sample_shape", info.sample_shape},
        {"task", info.task == Task::classification ? "classification" : "regression"},
        {"classes", info.classes},
        {"train", split_json(train)},
        {"test", split_json(test)}};
    object["damaged"] = ordered_json::array();
    for (const Damage& damage : damages)
      object["damaged"].push_back(
          {{"split", split_name(damage.split)}, {"sample", damage.index}, {"error", damage.what}});
    out << json_text(object) << '\n';
  }

  void print(const DataInfo& info, const SplitFigures& train, const SplitFigures& test,
             const std::vector<Damage>& damages, std::ostream& out) const {
    const bool labels = info.task == Task::classification;
    out << spec_ << ": samples " << shape_of_samples(info) << ", " << format_count(info.classes)
        << (labels ? " classes\n" : " outputs\n");
    Table table({"split", "samples", "labels per class", "least", "most", "mean", "deviation"});
    for (const auto& [name, figures] : {std::pair("train", &train), std::pair("test", &test)}) {
      const bool any = figures->read > 0;
      const auto number = [any](double value) { return any ? format_number(value, 4) : "-"; };
      table.add_row({name, format_count(figures->samples), labels_range(*figures),
                     number(figures->least), number(figures->most), number(figures->mean()),
                     number(figures->deviation())});
    }
    out << table;
    for (std::size_t i = 0; i < std::min(damages.size(), kPrintedDamages); ++i)
      out << without_control_characters("damaged: " + damages[i].what) << '\n';
    if (damages.size() > kPrintedDamages)
      out << "and " << damages.size() - kPrintedDamages << " more: --json has all\n";
  }

  std::string action_, spec_;
  std::int64_t seed_ = 1;
  std::int32_t threads_ = 2;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_data_command() { return std::make_unique<DataCommand>(); }

}  // namespace grapevine
