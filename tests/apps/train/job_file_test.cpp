// The job file that a run leaves: `train` repeats the run from it, bit for bit.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "apps/console/verb_options.hpp"
#include "apps/train/job_file.hpp"
#include "apps/train/options/option_traits.hpp"
#include "apps/train/train_options.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/run_here.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace job_file_test {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

// Its length is left to the case.
Arguments run_into(const fs::path& out) {
  return {"train", "--model", "linear",    "--data",     "glyphs:320", "--threads",
          "1",     "--trace", "off",       "--validate", "end",        "--checkpoint-every",
          "0",     "--out",   out.string()};
}

// A column of metrics.csv by rank and step: ranks write their rows in any order.
std::map<std::string, std::string> losses_of(const fs::path& out) {
  std::istringstream rows(read_file(out / "metrics.csv"));
  std::map<std::string, std::string> losses;
  std::string row;
  std::getline(rows, row);
  while (std::getline(rows, row)) {
    std::vector<std::string> cells;
    std::istringstream line(row);
    for (std::string cell; std::getline(line, cell, ',');) cells.push_back(cell);
    losses[cells.at(0) + " " + cells.at(2) + " " + cells.at(1)] = cells.at(7);
  }
  return losses;
}

void expect_same_run(const fs::path& one, const fs::path& other) {
  EXPECT_TRUE(read_file(one / "model.pt") == read_file(other / "model.pt"));
  EXPECT_FALSE(losses_of(one).empty());
  EXPECT_EQ(losses_of(one), losses_of(other));
  EXPECT_EQ(summary_of(one)["final_loss"], summary_of(other)["final_loss"]);
}

// In a process of its own, which has nothing in common with the run but its file.
ProcessResult repeat(const fs::path& run, const fs::path& out, const Arguments& more = {}) {
  return run_process(with({"train", (run / "job.toml").string(), "--out", out.string()}, more));
}

struct Case {
  Arguments options;
  std::vector<std::string> environment;
};

TEST(JobFile, RepeatsTheRunBitForBit) {
  const std::vector<Case> cases = {
      {{"--algorithm", "sgp", "--steps", "4", "--workers", "3", "--optimizer", "adam", "--lr",
        "1.23456789e-3", "--seed", "7", "--set", "wiring.peers=0:1,1:2"},
       {}},
      {{"--algorithm", "ar", "--epochs", "1.5", "--batch-size", "20", "--lr-schedule", "step:0.5@1",
        "--warmup-epochs", "0.5", "--nesterov", "--weight-decay", "0.001"},
       {"GRAPEVINE_WORKERS=2", "GRAPEVINE_LR=0.017", "GRAPEVINE_STEPS=3"}},
      {{"--algorithm", "topk", "--steps", "4", "--delay", "rank=1:20ms", "--set",
        "wiring.density=0.05", "--momentum", "0.5"},
       {"GRAPEVINE_SET=wiring.sparse_reduce=butterfly", "GRAPEVINE_SEED=11"}},
      {{"--algorithm", "diloco", "--steps", "7", "--set", "wiring.local_steps=3", "--set",
        "wiring.outer_lr=0.5", "--lr-schedule", "cosine:0.1", "--log-every", "2"},
       {}},
      {{"--algorithm", "gem", "--steps", "5", "--workers", "1", "--lr-per-256"}, {}},
      {{"--algorithm", "downpour", "--steps", "5", "--workers", "1", "--precision", "bf16"}, {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.options));
    const TemporaryDirectory folder;
    const fs::path first = folder.path() / "first", second = folder.path() / "second";
    const ProcessResult run = run_here(with(run_into(first), c.options), c.environment);
    ASSERT_EQ(run.exit_code, 0) << run.describe();
    EXPECT_NE(run.out.find(" job.toml "), std::string::npos) << run.describe();
    const ProcessResult again = repeat(first, second);
    ASSERT_EQ(again.exit_code, 0) << again.describe();
    expect_same_run(first, second);
    EXPECT_EQ(read_file(first / "job.toml"), read_file(second / "job.toml"));
  }
}

// A wiring that names its exchange needs no preset, and keeps no key of the default one.
TEST(JobFile, AWiringOfItsOwnIsCompleteAndRepeats) {
  const TemporaryDirectory folder;
  const fs::path own = folder.path() / "own.toml", first = folder.path() / "first",
                 second = folder.path() / "second";
  std::ofstream(own) << "[wiring]\nexchange = \"aggregate\"\npack = \"difference\"\n"
                        "local_steps = 2\nouter = \"slowmo\"\n";
  Arguments arguments = with(run_into(first), {"--steps", "4", "--workers", "2"});
  arguments.insert(arguments.begin() + 1, own.string());
  const ProcessResult run = run_here(arguments);
  ASSERT_EQ(run.exit_code, 0) << run.describe();
  EXPECT_EQ(summary_of(first)["algorithm"], "custom");
  EXPECT_EQ(summary_of(first)["wiring"]["exchange"], "aggregate");
  EXPECT_EQ(summary_of(first)["wiring"].count("topology"), 0U);
  const ProcessResult again = repeat(first, second);
  ASSERT_EQ(again.exit_code, 0) << again.describe();
  expect_same_run(first, second);
  const ProcessResult shown = run_here({"wiring", "show", (first / "job.toml").string()});
  EXPECT_EQ(shown.exit_code, 0) << shown.describe();
}

// The file of a run states its whole wiring, which is not that of another algorithm.
TEST(JobFile, AnotherAlgorithmReplacesTheWiring) {
  const TemporaryDirectory folder;
  const fs::path first = folder.path() / "first", second = folder.path() / "second";
  const Arguments options = {"--algorithm", "sgp", "--steps", "4", "--workers", "2"};
  ASSERT_EQ(run_here(with(run_into(first), options)).exit_code, 0);
  const ProcessResult other = repeat(first, second, {"--algorithm", "ar"});
  ASSERT_EQ(other.exit_code, 0) << other.describe();
  EXPECT_NE(other.err.find("--algorithm ar replaces the [wiring] of "), std::string::npos)
      << other.describe();
  EXPECT_EQ(summary_of(second)["algorithm"], "ar");
  EXPECT_EQ(summary_of(second)["wiring"]["exchange"], "aggregate");
  const ProcessResult same = repeat(first, second, {"--algorithm", "sgp", "--overwrite"});
  EXPECT_EQ(same.err.find("replaces"), std::string::npos) << same.describe();
}

// A wiring that names no exchange is a change of any preset.
TEST(JobFile, ChangesOfAPresetStayOnTopOfAnother) {
  const TemporaryDirectory folder;
  const fs::path own = folder.path() / "own.toml", out = folder.path() / "out";
  std::ofstream(own) << "algorithm = \"sgp\"\n[wiring]\nlocal_steps = 2\n";
  Arguments arguments = with(run_into(out), {"--steps", "2", "--workers", "2"});
  arguments = with(arguments, {own.string(), "--algorithm", "ad-psgd"});
  const ProcessResult run = run_here(arguments);
  ASSERT_EQ(run.exit_code, 0) << run.describe();
  EXPECT_EQ(summary_of(out)["wiring"]["exchange"], "bilateral");
  EXPECT_EQ(summary_of(out)["wiring"]["local_steps"], "2");
}

// Where the file lacks an option, the comparison above notices.
TEST(JobFile, ARunWithoutOneOfItsOptionsIsAnother) {
  const TemporaryDirectory folder;
  const fs::path first = folder.path() / "first", second = folder.path() / "second";
  const Arguments options = {"--algorithm", "ar", "--steps", "4", "--workers", "2", "--lr", "0.2"};
  ASSERT_EQ(run_here(with(run_into(first), options)).exit_code, 0);
  std::istringstream lines(read_file(first / "job.toml"));
  std::ofstream cut(first / "job.toml");
  for (std::string line; std::getline(lines, line);)
    if (line != "lr = 0.2") cut << line << "\n";
  cut.close();
  ASSERT_EQ(repeat(first, second).exit_code, 0);
  EXPECT_NE(losses_of(first), losses_of(second));
}

// ---- the text

// A value of each option that is not its default. A new option of `train` belongs here, or has
// OptionTraits::not_in_job_file.
const std::map<std::string, std::string> kSamples = {
    {"algorithm", "d-psgd"},
    {"workers", "3"},
    {"transport", "tcp"},
    {"model", "1.50"},
    {"data", "images:a \"b\" \\c\n\u00e9"},
    {"augment", "crop,flip"},
    {"skip-damaged", "true"},
    {"loss", "mse"},
    {"label-smoothing", "0.1"},
    {"accumulate", "2"},
    {"no-decay", "true"},
    {"warmup-steps", "9"},
    {"warmup-from", "0.25"},
    {"early-stop", "4"},
    {"init", "first/model.pt"},
    {"epochs", "0.1234567890123456"},
    {"batch-size", "48"},
    {"lr", "1.23456789e-3"},
    {"lr-per-256", "true"},
    {"momentum", "0.25"},
    {"nesterov", "true"},
    {"weight-decay", "1e-05"},
    {"optimizer", "sgdx"},
    {"lr-schedule", "step:0.5@1,2"},
    {"schedule", "changes.toml"},
    {"tls", "certificates"},
    {"trust-fabric", "true"},
    {"warmup-epochs", "2.5"},
    {"seed", "9007199254740993"},
    {"delay", "rank=1:20ms"},
    {"device", "cuda:1"},
    {"peers", "auto"},
    {"pinned-models", "3"},
    {"bind-threads", "none"},
    {"devices-per-worker", "2"},
    {"processes-per-worker", "2"},
    {"precision", "tf32"},
    {"channels-last", "true"},
    {"cudnn-benchmark", "true"},
    {"cuda-graphs", "true"},
    {"threads", "5"},
    {"checkpoint-every", "0.5"},
    {"checkpoint-keep", "latest"},
    {"validate", "end"},
    {"trace", "off"},
    {"trace-limit", "2000000"},
    {"trace-sample", "3"},
    {"tensorboard", "true"},
    {"log-every", "7"},
    {"timeout", "12.5"},
    {"min-ranks", "2"},
    {"max-ranks", "8"},
    {"stall-abort", "90"},
    {"lost-after", "7.5"},
};

struct Parsed {
  CLI::App app;
  TrainOptions options;
  Parsed() { declare_train_options(app, options); }
  void parse(const Arguments& arguments) {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));
  }
};

std::string name_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? "job" : option.get_lnames().front();
}

// What each option holds, as text with all digits.
std::map<std::string, std::string> values_of(const CLI::App& app) {
  std::map<std::string, std::string> values;
  for (const CLI::Option* option : app.get_options())
    if (option->count() > 0) values[name_of(*option)] = option->results().back();
  return values;
}

std::string text_of(const Parsed& parsed) {
  TrainOptions options = parsed.options;
  if (options.workers == kWorkersAsUsual) options.workers = 4;
  return job_file_text(parsed.app, options, *effective_wiring(options), {});
}

void read(const std::string& text, Parsed& into) {
  Places places;
  const auto done = read_options(into.app, text, "job.toml", {"wiring"}, places);
  ASSERT_TRUE(done.ok()) << done.error().message << "\n" << text;
}

TEST(JobFile, EveryOptionIsWrittenOrOnTheListOfThoseLeftOut) {
  const Parsed declared;
  for (const CLI::Option* option : declared.app.get_options()) {
    const std::string name = name_of(*option);
    const std::string length = name == "steps" ? "5" : "";  // instead of epochs
    const bool left_out = option_has(name, OptionTraits::not_in_job_file);
    EXPECT_NE(left_out, kSamples.count(name) > 0 || !length.empty())
        << "--" << name << ": add it to kSamples, or give it not_in_job_file";
    if (left_out) continue;
    const std::string value = length.empty() ? kSamples.at(name) : length;
    Parsed given, back;
    given.parse({"--" + name + "=" + value});
    read(text_of(given), back);
    EXPECT_NE(value, option->get_default_str()) << "--" << name;
    EXPECT_EQ(back.app.get_option("--" + name)->count(), 1U) << "--" << name;
    // Written again, it is the same: 1e-05 and 0.00001 are one number.
    EXPECT_EQ(text_of(given), text_of(back)) << "--" << name;
    if (name == "data") {
      EXPECT_EQ(back.options.data, value);
    }
    if (name == "model") {
      EXPECT_EQ(back.options.model, value);
    }
    if (name == "seed") {
      EXPECT_EQ(back.options.seed, 9007199254740993);
    }
    if (name == "epochs") {
      EXPECT_EQ(back.options.epochs, given.options.epochs);
    }
  }
}

// So that another version, with other defaults, repeats the run too.
TEST(JobFile, DefaultsAreWritten) {
  Parsed usual, back;
  usual.options.workers = 4;
  usual.options.transport = "inproc";
  read(text_of(usual), back);
  std::set<std::string> expected;
  for (const auto& [name, sample] : kSamples)
    if (name != "delay" && name != "init" && name != "schedule" && name != "tls")  // none
      expected.insert(name);
  std::set<std::string> written;
  for (const auto& [name, value] : values_of(back.app)) written.insert(name);
  EXPECT_EQ(written, expected);
  EXPECT_EQ(back.options.lr, usual.options.lr);
}

TEST(JobFile, TheWiringResolvesToItself) {
  for (const Preset& preset : presets()) {
    SCOPED_TRACE(preset.name);
    Parsed parsed;
    parsed.parse({"--algorithm", preset.name});
    const auto wiring = Wiring::parse_toml(text_of(parsed), "job.toml");
    ASSERT_TRUE(wiring.ok()) << wiring.error().message;
    const auto back = resolve_keys(*wiring);
    ASSERT_TRUE(back.ok()) << back.error().message;
    const auto resolved = resolve_keys(preset.wiring);
    ASSERT_EQ(back->keys.size(), resolved->keys.size());
    for (std::size_t i = 0; i < back->keys.size(); ++i) {
      EXPECT_EQ(back->keys[i].key, resolved->keys[i].key);
      EXPECT_EQ(back->keys[i].value, resolved->keys[i].value) << back->keys[i].key;
    }
  }
}

TEST(JobFile, APathThatIsNoTextIsLeftToTheCommandLine) {
  Parsed given, back;
  given.parse({"--model=a\xff", "--lr=0.5"});
  const std::string text = text_of(given);
  EXPECT_NE(text.find("# model: is not UTF-8"), std::string::npos) << text;
  read(text, back);
  EXPECT_EQ(back.options.lr, 0.5);
}

// ---- the file

TEST(JobFile, OtherCommandsTakeIt) {
  const TemporaryDirectory folder;
  const fs::path run = folder.path() / "run";
  const Arguments options = {"--algorithm", "gem", "--workers", "1", "--steps", "2"};
  ASSERT_EQ(run_here(with(run_into(run), options)).exit_code, 0);
  const std::string job = (run / "job.toml").string();
  for (const std::string action : {"show", "check"}) {
    const ProcessResult result = run_here({"wiring", action, job});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_NE(result.out.find("server"), std::string::npos) << result.describe();
  }
  // It states the defaults of the wiring; the checkpoint is of the same job all the same.
  const ProcessResult longer = run_here({"train", job, "--resume", run.string(), "--steps", "4"});
  ASSERT_EQ(longer.exit_code, 0) << longer.describe();
  const std::string text = read_file(run / "job.toml");
  EXPECT_NE(text.find("steps = 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# The run was resumed"), std::string::npos) << text;
}

TEST(JobFile, AFileOfTheUserIsNotReplaced) {
  const TemporaryDirectory folder;
  const fs::path job = folder.path() / "job.toml";
  std::ofstream(job) << "lr = 0.1\n";
  const ProcessResult result = run_here(with(run_into(folder.path()), {job.string()}));
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_NE(result.err.find("was not written by a run"), std::string::npos) << result.describe();
  EXPECT_EQ(read_file(job), "lr = 0.1\n");
}

// The earlier run's file stays until the new run's first step, then it is the new run's.
TEST(JobFile, BelongsToTheOutputsBesideIt) {
  const TemporaryDirectory folder;
  const fs::path run = folder.path() / "run";
  const Arguments options = with(run_into(run), {"--workers", "1", "--steps", "2"});
  ASSERT_EQ(run_here(with(options, {"--seed", "5"})).exit_code, 0);
  ASSERT_EQ(run_here(with(options, {"--seed", "6", "--overwrite"})).exit_code, 0);
  EXPECT_NE(read_file(run / "job.toml").find("seed = 6\n"), std::string::npos);
}

// Started by a launcher: process 0 writes it, with the nodes' size in place of `node`.
TEST(JobFile, OfSeveralProcessesIsRepeatedByAsMany) {
  const TemporaryDirectory folder;
  const fs::path first = folder.path() / "first", second = folder.path() / "second";
  const Arguments launch = {"launch", "-n", "2", "--"};
  const Arguments options = {"--steps", "3",     "--algorithm",
                             "sgp",     "--set", "wiring.hierarchy=node"};
  const ProcessResult run = run_process(with(launch, with(run_into(first), options)));
  ASSERT_EQ(run.exit_code, 0) << run.describe();
  const std::string job = (first / "job.toml").string(), text = read_file(job);
  for (const char* line : {"\nworkers = 1\n", "\ntransport = 'auto'\n", "\nhierarchy = 2\n",
                           "#   grapevine launch -n 2 -- train job.toml --out DIR\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << " is not in:\n" << text;
  const ProcessResult alone = repeat(first, second);
  EXPECT_EQ(alone.exit_code, 2) << "half of the workers are another run: " << alone.describe();
  const ProcessResult again = run_process(with(launch, {"train", job, "--out", second.string()}));
  ASSERT_EQ(again.exit_code, 0) << again.describe();
  expect_same_run(first, second);
}

}  // namespace job_file_test
}  // namespace grapevine
