// Pages of docs/ whose commands and snippets work as they stand: they are run in their order, word
// by word, in one folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/apps/process.hpp"
#include "tests/apps/run_here.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace documents_test {

namespace fs = std::filesystem;

// A fenced block: the text behind its fence, and its lines.
struct Block {
  std::string kind;
  std::string text;
};

std::vector<Block> blocks_of(const std::string& page) {
  std::ifstream file(fs::path(GRAPEVINE_SOURCE_DIR) / "docs" / page);
  EXPECT_TRUE(file) << page;
  std::vector<Block> blocks;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("```", 0) == 0) {
      if (!inside) blocks.push_back({line.substr(3), ""});
      inside = !inside;
    } else if (inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

std::string distribution_python() { return "/usr/bin/python3"; }

// Asked once: the import takes a second or more.
bool has_torch() {
  static const bool found = [] {
    if (!fs::exists(distribution_python())) return false;
    ProcessOptions options;
    options.program = distribution_python();
    return run_process({"-c", "import numpy, torch"}, options).exit_code == 0;
  }();
  return found;
}

// Runs blocks of a page in a folder of its own.
class Page {
 public:
  Page() {
    const fs::path tools = folder_.path() / "tools";
    fs::create_directories(tools);
    fs::create_symlink(GRAPEVINE_EXECUTABLE, tools / "grapevine");
    fs::create_symlink(distribution_python(), tools / "python3");
    path_ = "PATH=" + tools.string() + ":" + std::getenv("PATH");
    fs::copy_file(fs::path(GRAPEVINE_SOURCE_DIR) / "apps/examples/python/zoo.py", at("zoo.py"));
  }

  fs::path at(const std::string& name) const { return folder_.path() / name; }

  // Shell commands stop at the first one that fails.
  ProcessResult run(const Block& block) {
    ProcessOptions options;
    options.program = "/bin/bash";
    options.directory = folder_.path();
    options.environment = {path_, "OMP_NUM_THREADS=1"};
    options.timeout = std::chrono::seconds(600);
    if (block.kind == "sh") return run_process({"-e", "-c", block.text}, options);
    std::ofstream(at("snippet.py")) << block.text;
    return run_process({"-c", "python3 snippet.py"}, options);
  }

 private:
  const TemporaryDirectory folder_;
  std::string path_;
};

const char kFile[] = "python file=";

// README, CONTRIBUTING and all pages of docs/.
std::vector<fs::path> all_documents() {
  const fs::path source(GRAPEVINE_SOURCE_DIR);
  std::vector<fs::path> documents = {source / "README.md", source / "CONTRIBUTING.md"};
  for (const auto& entry : fs::recursive_directory_iterator(source / "docs"))
    if (entry.path().extension() == ".md") documents.push_back(entry.path());
  return documents;
}

// Characters of UTF-8.
std::size_t width_of(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

// Short lines keep the changes of a paragraph small. A single word may be longer.
TEST(Documents, LinesOfProseAreShort) {
  for (const fs::path& path : all_documents()) {
    std::ifstream file(path);
    ASSERT_TRUE(file) << path;
    bool inside_block = false;
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("```", 0) == 0) inside_block = !inside_block;
      const bool is_word = line.find(' ', line.find_first_not_of(' ')) == std::string::npos;
      if (inside_block || line.rfind('|', 0) == 0 || is_word) continue;
      EXPECT_LE(width_of(line), 120U) << path << ": " << line;
    }
  }
}

// A row behind an empty line is shown as text with bars: a table begins with its head.
TEST(Documents, TablesAreWhole) {
  for (const fs::path& path : all_documents()) {
    std::ifstream file(path);
    std::string before;
    bool inside_block = false, begins = false;
    for (std::string line; std::getline(file, line); before = line) {
      if (line.rfind("```", 0) == 0) inside_block = !inside_block;
      const bool row = !inside_block && line.rfind('|', 0) == 0;
      if (begins) {
        EXPECT_EQ(line.rfind("|-", 0), 0U) << path << ": behind " << before;
      }
      begins = row && before.rfind('|', 0) != 0;
    }
  }
}

TEST(Documents, AJobOfOnesOwn) {
  if (!has_torch()) GTEST_SKIP() << "python3-torch is not installed";
  Page page;
  int commands = 0;
  std::string out;
  for (const Block& block : blocks_of("own-job.md")) {
    SCOPED_TRACE(block.text);
    if (block.kind.rfind(kFile, 0) == 0) {
      std::ofstream(page.at(block.kind.substr(sizeof kFile - 1))) << block.text;
      continue;
    }
    if (block.kind != "sh") continue;
    commands += static_cast<int>(std::count(block.text.begin(), block.text.end(), '\n'));
    const ProcessResult result = page.run(block);
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    out += result.out + result.err;
  }
  EXPECT_LE(commands, 15);
  EXPECT_NE(out.find("npy:shapes: samples 1x16x16, 3 classes"), std::string::npos) << out;
  EXPECT_NE(out.find("exit code 4"), std::string::npos) << out;
  EXPECT_NE(out.find(", with lr 0.01 instead of 0.02"), std::string::npos) << out;
  EXPECT_NE(out.find("of 100 are right"), std::string::npos) << out;
  EXPECT_TRUE(fs::exists(page.at("confusion.svg")));
  EXPECT_TRUE(fs::exists(page.at("curves.svg")));
  const nlohmann::json summary = summary_of(page.at("runs/shapes"));
  EXPECT_EQ(summary["options"]["lr"], 0.01);
  EXPECT_EQ(summary["options"]["workers"], 4);
  EXPECT_GT(summary["test_accuracy"].get<double>(), 0.8);
}

TEST(Documents, TheContractOfModels) {
  if (!has_torch()) GTEST_SKIP() << "python3-torch is not installed";
  Page page;
  int snippets = 0;
  for (const Block& block : blocks_of("model-contract.md")) {
    SCOPED_TRACE(block.text);
    if (block.kind != "sh" && block.kind != "python") continue;
    const ProcessResult result = page.run(block);
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    ++snippets;
  }
  EXPECT_GT(snippets, 8);
  // The model of text has learnt to count.
  EXPECT_GT(summary_of(page.at("runs/text"))["test_accuracy"].get<double>(), 0.9);
}

// A built-in model that zoo.py defines, too.
struct ZooModel {
  std::string name, data;
  std::string arguments;  // of make_model(), in Python
  std::string input;      // with which it is traced; empty: it is scripted
};

std::vector<ZooModel> zoo_models(const std::string& text) {
  const std::string glyphs = "(1, 28, 28), 10", image = "torch.zeros(2, 1, 28, 28)";
  return {{"linear", "glyphs:64", glyphs, ""},
          {"mlp", "glyphs:64", glyphs, ""},
          {"lenet", "glyphs:64", glyphs, ""},
          {"gem-cnn", "glyphs:64", glyphs, ""},
          {"resnet20", "glyphs:64", glyphs, image},
          {"resnet32", "glyphs:64", glyphs, image},
          {"resnet18", "glyphs:16", glyphs, image},
          {"resnet50", "glyphs:16", glyphs, image},
          {"vgg16", "glyphs:16", glyphs, image},
          {"lstm", "sequences:64", "(102, 9), 6", ""},
          {"transformer", "sequences:64", "(102, 9), 6", ""},
          {"lstm", "text:" + text, "(64,), 26, 26", ""},
          {"transformer", "text:" + text, "(64,), 26, 26", ""}};
}

// Loads the model of each run into zoo.py's module and saves that as TorchScript.
Block scripts_of(const std::vector<ZooModel>& models) {
  std::string text =
      "import torch, zoo\n"
      "def save(number, net, image=None):\n"
      "    net.load_state_dict(torch.load(f'run-{number}/model.pt'))\n"
      "    net.eval()\n"
      "    script = torch.jit.script(net) if image is None else torch.jit.trace(net, image)\n"
      "    script.save(f'script-{number}.pt')\n";
  for (std::size_t number = 0; number < models.size(); ++number) {
    const ZooModel& model = models[number];
    text += "save(" + std::to_string(number) + ", zoo.make_model('" + model.name + "', " +
            model.arguments + ")" + (model.input.empty() ? "" : ", " + model.input) + ")\n";
  }
  return {"python", text};
}

nlohmann::json evaluated(const std::vector<std::string>& arguments) {
  const ProcessResult result =
      run_here(with(with({"evaluate"}, arguments), {"--split", "train", "--json"}));
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  return nlohmann::json::parse(result.out, nullptr, false);
}

// Each built-in model that zoo.py defines has the names and shapes of the C++ one, and gives the
// same results.
TEST(Documents, ThePythonZooIsTheBuiltInOne) {
  if (!has_torch()) GTEST_SKIP() << "python3-torch is not installed";
  Page page;
  std::ofstream letters(page.at("letters.txt"));
  for (int i = 0; i < 4000; ++i) letters << static_cast<char>('a' + (7 * i + i / 26) % 26);
  letters.close();
  const std::vector<ZooModel> models = zoo_models(page.at("letters.txt"));
  const auto file = [&page](const std::string& kind, std::size_t number) {
    return page.at(kind + "-" + std::to_string(number)).string();
  };
  for (std::size_t number = 0; number < models.size(); ++number) {
    const ProcessResult trained = run_here({"train",
                                            "--model",
                                            models[number].name,
                                            "--data",
                                            models[number].data,
                                            "--workers",
                                            "1",
                                            "--batch-size",
                                            "8",
                                            "--steps",
                                            "2",
                                            "--seed",
                                            "3",
                                            "--threads",
                                            "1",
                                            "--json",
                                            "--trace",
                                            "off",
                                            "--checkpoint-every",
                                            "0",
                                            "--validate",
                                            "end",
                                            "--out",
                                            file("run", number)});
    ASSERT_EQ(trained.exit_code, 0) << models[number].name << trained.describe();
  }
  const ProcessResult scripted = page.run(scripts_of(models));
  ASSERT_EQ(scripted.exit_code, 0) << scripted.describe();
  for (std::size_t number = 0; number < models.size(); ++number) {
    SCOPED_TRACE(models[number].name + " on " + models[number].data);
    const auto figures = evaluated({file("run", number)});
    const auto same = evaluated({file("script", number) + ".pt", "--data", models[number].data});
    ASSERT_TRUE(figures.is_object() && same.is_object());
    EXPECT_NEAR(figures["loss"].get<double>(), same["loss"].get<double>(), 1e-4);
    EXPECT_EQ(figures["confusion"], same["confusion"]);
  }
}

}  // namespace documents_test
}  // namespace grapevine
