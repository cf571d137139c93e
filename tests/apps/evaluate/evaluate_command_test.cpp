#include "apps/evaluate/evaluate_command.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include "apps/evaluate/confusion_figure.hpp"
#include "apps/evaluate/model_figures.hpp"
#include "apps/plot/gnuplot.hpp"
#include "apps/zoo/data.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/run_here.hpp"
#include "tests/apps/train/train_run.hpp"
#include "tests/apps/verb_runner.hpp"
#include "tests/apps/zoo/models/script_model.hpp"

namespace grapevine {
namespace evaluate_command_test {

namespace fs = std::filesystem;

// A run, evaluated again by the command: the same figures, from the run, its file, and the file
// alone.
TEST(EvaluateCommand, AgreesWithTheRun) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const ProcessResult trained = run_here(small_run("ar", out));
  ASSERT_EQ(trained.exit_code, 0) << trained.describe();
  const nlohmann::json summary = summary_of(out);
  const fs::path alone = folder.path() / "alone.pt";
  fs::copy_file(out / "model.pt", alone);
  const std::vector<std::vector<std::string>> ways = {
      {out.string()},
      {(out / "model.pt").string(), "--data", "glyphs:1200"},
      {alone.string(), "--model", "mlp", "--data", "glyphs:1200", "--batch-size", "7"}};
  for (const auto& way : ways) {
    SCOPED_TRACE(testing::PrintToString(way));
    const ProcessResult result = run_here(with({"evaluate", "--json"}, way));
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    const auto figures = nlohmann::json::parse(result.out);
    EXPECT_DOUBLE_EQ(figures["top1"].get<double>(), summary["test_accuracy"].get<double>());
    EXPECT_NEAR(figures["loss"].get<double>(), summary["test_loss"].get<double>(), 1e-6);
    EXPECT_EQ(figures["samples"], 200);
  }
  const ProcessResult nameless = run_here({"evaluate", alone.string(), "--data", "glyphs:1200"});
  EXPECT_EQ(nameless.exit_code, 2);
  EXPECT_NE(nameless.err.find("--model"), std::string::npos) << nameless.describe();
  const ProcessResult other =
      run_here({"evaluate", alone.string(), "--model", "lenet", "--data", "glyphs:1200"});
  EXPECT_EQ(other.exit_code, 2) << other.describe();
}

// Data that is drawn for each run is drawn again: another seed would be another task.
TEST(EvaluateCommand, TakesTheDataOfTheRun) {
  const TemporaryDirectory folder;
  const std::string out = (folder.path() / "run").string();
  const ProcessResult trained = run_here(
      {"train", "--algorithm", "ar", "--model", "linear", "--data", "hyperplane:16", "--seed", "5",
       "--steps", "40", "--threads", "1", "--trace", "off", "--json", "--out", out});
  ASSERT_EQ(trained.exit_code, 0) << trained.describe();
  const auto loss_of = [&](const std::vector<std::string>& more) {
    const ProcessResult result = run_here(with({"evaluate", out, "--json"}, more));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return nlohmann::json::parse(result.out)["loss"].get<double>();
  };
  const double loss = summary_of(out)["test_loss"].get<double>();
  EXPECT_NEAR(loss_of({}), loss, 1e-6);
  EXPECT_NEAR(loss_of({"--data", "hyperplane:16"}), loss, 1e-6);
  EXPECT_GT(loss_of({"--seed", "1"}), 2 * loss) << "of another task";
}

// Convolutions have all bits of float32 here, as in a run's validation: not what LibTorch begins
// with.
TEST(EvaluateCommand, ComputesWithAllBits) {
  const TemporaryDirectory folder;
  const std::string model =
      save_script_model(folder.path() / "net.pt", at::rand({4, 1}),
                        "def forward(self, x):\n    return x.matmul(self.w)\n");
  at::globalContext().setAllowTF32CuDNN(true);
  testing_apps::VerbRunner(make_evaluate_command)
      .output(model + " --data hyperplane:4 --device cpu --threads 1");
  EXPECT_FALSE(at::globalContext().allowTF32CuDNN());
}

// A model that takes the class of a sample from its first value, with an error that is known.
class KnownModel final : public Model {
 public:
  std::vector<NamedTensor> parameters() override { return {}; }
  std::vector<NamedTensor> buffers() override { return {}; }
  void train(bool /*on*/) override {}
  Expected<void> save(const std::string& /*path*/) override { return {}; }
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor guess = input.select(1, 0).to(at::kLong);
    guess = at::where(guess == 2, at::zeros_like(guess), guess);  // 2 is taken for 0
    return 3 * at::one_hot(guess, 4).to(at::kFloat);
  }
};

class FirstValue final : public DataSet {
 public:
  FirstValue() {
    info_.name = "first";
    info_.sample_shape = {2};
    info_.classes = 4;
    info_.train_size = info_.test_size = 10;
  }
  const DataInfo& info() const override { return info_; }
  Expected<Batch> batch(Split /*split*/, const std::vector<std::int64_t>& indices,
                        std::uint64_t /*seed*/) const override {
    const auto size = static_cast<std::int64_t>(indices.size());
    Batch batch{at::zeros({size, 2}), at::zeros({size}, at::kLong)};
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t label = indices[static_cast<std::size_t>(i)] % 4;
      batch.target[i] = label;
      batch.input[i][0] = label;
    }
    return batch;
  }

 private:
  DataInfo info_;
};

// Labels 0 1 2 3 0 1 2 3 0 1: three of 0 and 1, two of 2 and 3, whatever the batches are.
TEST(ModelFigures, CountEachClass) {
  for (const std::int64_t batch_size : {1, 3, 10}) {
    KnownModel model;
    FigureOptions options;
    options.batch_size = batch_size;
    const auto figures = figures_of_model(model, FirstValue(), options);
    ASSERT_TRUE(figures.ok()) << figures.error().message;
    EXPECT_DOUBLE_EQ(figures->top1, 0.8);
    EXPECT_TRUE(std::isnan(figures->top5));
    EXPECT_EQ(figures->labels, (std::vector<std::int64_t>{3, 3, 2, 2}));
    EXPECT_EQ(figures->hits, (std::vector<std::int64_t>{3, 3, 0, 2}));
    EXPECT_EQ(figures->taken, (std::vector<std::int64_t>{5, 3, 0, 2}));
    EXPECT_EQ(figures->confusion[2][0].item<std::int64_t>(), 2);
    EXPECT_EQ(figures->confusion.sum().item<std::int64_t>(), 10);
    const double hit = std::log(std::exp(3.0) + 3) - 3, miss = std::log(std::exp(3.0) + 3);
    EXPECT_NEAR(figures->loss, 0.8 * hit + 0.2 * miss, 1e-6);
  }
}

TEST(ModelFigures, RefuseALossThatDoesNotFit) {
  KnownModel model;
  const auto data = make_data_set("hyperplane:4", {});
  ASSERT_TRUE(data.ok());
  FigureOptions options;
  options.loss = LossKind::cross_entropy;
  const auto figures = figures_of_model(model, **data, options);
  ASSERT_FALSE(figures.ok());
  EXPECT_EQ(figures.error().code, Errc::bad_input);
}

// Where the classes have no names, each has its number.
TEST(ConfusionFigure, NumbersEachClassThatFits) {
  const auto script = [](std::int64_t classes) {
    return confusion_script(at::ones({classes, classes}, at::kLong), {}, FigureFormat::svg, "t");
  };
  EXPECT_NE(script(10).find("set xtics 1\nset ytics 1\n"), std::string::npos) << script(10);
  EXPECT_EQ(script(100).find("tics 1\n"), std::string::npos);
}

TEST(ConfusionFigure, IsDrawn) {
  if (!find_gnuplot().ok()) GTEST_SKIP() << "gnuplot is not installed";
  const at::Tensor confusion = at::randint(0, 9, {3, 3}, at::kLong);
  for (const FigureFormat format : {FigureFormat::svg, FigureFormat::png}) {
    const auto drawn =
        run_gnuplot(confusion_script(confusion, {"a'b", "`x`", "c\n"}, format, "it's"));
    ASSERT_TRUE(drawn.ok()) << drawn.error().message;
    EXPECT_GT(drawn->size(), 1000U);
  }
}

}  // namespace evaluate_command_test
}  // namespace grapevine
