#include "apps/data/data_command.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "apps/zoo/data.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/verb_runner.hpp"
#include "tests/apps/zoo/data/own/npy_writer.hpp"

namespace grapevine {
namespace data_command_test {

namespace fs = std::filesystem;
using testing_apps::write_npy;

const testing_apps::VerbRunner kVerb(make_data_command);

// 100 samples of 2 values, of which some are not finite.
void write_damaged(const fs::path& folder, const std::vector<std::int64_t>& damaged) {
  at::Tensor x = at::ones({100, 2});
  for (const std::int64_t index : damaged) x[index][1] = std::numeric_limits<float>::quiet_NaN();
  write_npy(folder / "train_x.npy", x);
  write_npy(folder / "train_y.npy", at::arange(100, at::kLong).remainder(4));
}

TEST(DataCommand, NamesEveryDamagedSample) {
  const TemporaryDirectory folder;
  write_damaged(folder.path(), {3, 64, 99});
  const std::string spec = "'npy:" + folder.path().string() + "'";
  const auto outcome = kVerb.run("check " + spec + " --json");
  ASSERT_FALSE(outcome.result.ok());
  EXPECT_EQ(outcome.result.error().code, Errc::bad_input);
  EXPECT_NE(outcome.result.error().message.find("3 of 100 samples are damaged"), std::string::npos)
      << outcome.result.error().message;
  const auto object = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(object["damaged"].size(), 3U);
  EXPECT_EQ(object["damaged"][0]["sample"], 3);
  EXPECT_EQ(object["damaged"][2]["sample"], 99);
  EXPECT_EQ(object["train"]["read"], 97);
  const auto text = kVerb.run("check " + spec);
  EXPECT_NE(text.out.find("training sample 64 of data 'npy': a value is not finite"),
            std::string::npos)
      << text.out;
}

TEST(DataCommand, DescribesSoundData) {
  const TemporaryDirectory folder;
  write_damaged(folder.path(), {});
  const auto object =
      nlohmann::json::parse(kVerb.output("check 'npy:" + folder.path().string() + "' --json"));
  EXPECT_TRUE(object["damaged"].empty());
  EXPECT_EQ(object["classes"], 4);
  EXPECT_EQ(object["train"]["samples"], 100);
  EXPECT_DOUBLE_EQ(object["train"]["mean"].get<double>(), 1);
  EXPECT_EQ(object["train"]["labels"], nlohmann::json({25, 25, 25, 25}));
  EXPECT_EQ(object["test"]["samples"], 0);
}

TEST(DataCommand, RefusesWhatItDoesNotKnow) {
  EXPECT_NE(kVerb.error("repair glyphs").find("valid: check"), std::string::npos);
  EXPECT_NE(kVerb.error("check nothing").find("data set"), std::string::npos);
  EXPECT_NE(kVerb.error("check glyphs --threads 0").find("--threads"), std::string::npos);
}

// A batch has the next sample in the place of each damaged one, and equal calls give equal batches.
TEST(SkipDamaged, TakesTheNextSample) {
  const TemporaryDirectory folder;
  write_damaged(folder.path(), {3, 4, 99});
  const auto made = make_data_set("npy:" + folder.path().string(), {});
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto data = without_damaged(*made);
  for (int again = 0; again < 2; ++again) {
    const auto batch = data->batch(Split::train, {2, 3, 4, 5, 99}, 0);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    EXPECT_TRUE(batch->input.isfinite().all().item<bool>());
    const std::vector<std::int64_t> labels = {2, 1, 1, 1, 0};  // of samples 2, 5, 5, 5, 0
    for (std::int64_t i = 0; i < 5; ++i)
      EXPECT_EQ(batch->target[i].item<std::int64_t>(), labels[static_cast<std::size_t>(i)]);
  }
}

TEST(SkipDamaged, EndsWhereNothingIsLeft) {
  const TemporaryDirectory folder;
  std::vector<std::int64_t> all(100);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  write_damaged(folder.path(), all);
  const auto made = make_data_set("npy:" + folder.path().string(), {});
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto batch = without_damaged(*made)->batch(Split::train, {0}, 0);
  ASSERT_FALSE(batch.ok());
  EXPECT_NE(batch.error().message.find("100 samples in a row are damaged"), std::string::npos)
      << batch.error().message;
}

}  // namespace data_command_test
}  // namespace grapevine
