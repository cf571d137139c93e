#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "gpu/torch_compute.hpp"
#include "messages/random.hpp"
#include "tests/apps/zoo/data/data_testing.hpp"

namespace grapevine {
namespace data_text_test {

constexpr std::int64_t kSteps = 64;

TestBytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// `length` characters of which each says little about the next: a walk over the letters.
std::string walk(std::size_t length) {
  std::string text;
  for (std::uint64_t i = 0, at = 0; i < length; ++i) {
    at = (at + mix_seed(3, i) % 5) % 26;
    text.push_back(static_cast<char>('a' + at));
  }
  return text;
}

TEST(Text, SamplesAreTheTextAndLabelsTheNextCharacters) {
  const TempFolder folder;
  const std::string text = walk(kSteps * 40 + 17);
  write_bytes(folder.file("plain.txt"), bytes_of(text));
  write_gzip(folder.file("packed.gz"), bytes_of(text));
  const auto data = *make_data_set("text:" + folder.file("plain.txt"), {});
  const DataInfo& info = data->info();
  EXPECT_EQ(info.sample_shape, std::vector<std::int64_t>{kSteps});
  EXPECT_EQ(info.target_shape, std::vector<std::int64_t>{kSteps});
  EXPECT_EQ(info.train_size, 36);
  EXPECT_EQ(info.test_size, 4);
  EXPECT_EQ(info.classes, info.vocabulary);
  EXPECT_FALSE(info.by_length);
  std::string letters = text;
  std::sort(letters.begin(), letters.end());
  letters.erase(std::unique(letters.begin(), letters.end()), letters.end());
  ASSERT_EQ(info.vocabulary, static_cast<std::int64_t>(letters.size()));
  const auto packed = *make_data_set("text:" + folder.file("packed.gz"), {});
  std::size_t at = 0;
  for (const Split split : {Split::train, Split::test})
    for (std::int64_t i = 0; i < (split == Split::train ? 36 : 4); ++i, at += kSteps) {
      const Batch one = *data->batch(split, {i}, 5);
      ASSERT_EQ(one.input.sizes(), (std::vector<std::int64_t>{1, kSteps}));
      ASSERT_EQ(one.target.sizes(), (std::vector<std::int64_t>{1, kSteps}));
      EXPECT_TRUE(same_batches(one, *packed->batch(split, {i}, 0)));
      for (std::int64_t t = 0; t < kSteps; ++t) {
        ASSERT_EQ(letters[one.input[0][t].item<std::int64_t>()], text[at + t]);
        ASSERT_EQ(letters[one.target[0][t].item<std::int64_t>()], text[at + t + 1]);
      }
    }
  const Batch several = *data->batch(Split::train, {7, 0, 35}, 0);
  EXPECT_TRUE(several.input[2].equal(data->batch(Split::train, {35}, 0)->input[0]));
  EXPECT_THROW((void)data->batch(Split::test, {4}, 0), InvariantBroken);
  expect_threads_agree(*data, 0);
}

TEST(Text, WhatIsNoUseIsExplained) {
  const TempFolder folder;
  const auto refuse = [](const std::string& spec, const std::vector<std::string>& parts) {
    const auto made = make_data_set(spec, {});
    ASSERT_FALSE(made.ok()) << spec;
    expect_error(made.error(), parts);
  };
  refuse("text", {"text needs a file: text:FILE"});
  refuse("text:/no/such/file", {"/no/such/file", "does not exist"});
  refuse("text:" + folder.path(), {"is a folder"});
  refuse("text:/dev/zero", {"/dev/zero", "is a device"});
  const std::string file = folder.file("short.txt");
  write_bytes(file, bytes_of(walk(640)));
  refuse("text:" + file, {"short.txt", "640 characters", "641"});
  write_bytes(file, bytes_of(walk(641)));
  EXPECT_TRUE(make_data_set("text:" + file, {}).ok());
  write_bytes(file, TestBytes(1000, 'a'));
  refuse("text:" + file, {"all its characters are the same"});
}

// After "a" and "b" alike comes "-"; what comes then depends on which of them it was. A model that
// sees one character gets at most two of three right.
TEST(Text, ModelsLearnWhatTakesMemory) {
  const TempFolder folder;
  std::string text;
  for (std::uint64_t i = 0; text.size() < kSteps * 200; ++i)
    text += mix_seed(11, i) % 2 == 0 ? "a-x" : "b-y";
  write_bytes(folder.file("text"), bytes_of(text));
  for (const std::string model : {"lstm", "transformer"}) {
    SCOPED_TRACE(model);
    TorchComputeConfig config;
    config.data = *make_data_set("text:" + folder.file("text"), {});
    config.model = *make_model_factory(model, config.data->info());
    config.model_name = model;
    config.batch_size = 8;
    const auto compute = *TorchCompute::make(config);
    torch::Tensor x = compute->initial_parameters().read().clone();
    torch::optim::Adam optimizer({x}, torch::optim::AdamOptions(0.003));
    for (Step step = 0; step < 80; ++step) {
      GradientRequest request;
      request.step = step;
      request.z = FrozenTensor::copy_of(x);
      const Gradient gradient = compute->gradient(std::move(request));
      ASSERT_EQ(gradient.error, "");
      x.mutable_grad() = gradient.value.read();
      optimizer.step();
    }
    const Evaluation after = *compute->evaluate(FrozenTensor::copy_of(x), {});
    RecordProperty(model, std::to_string(after.top1));
    // Whether "a" or "b" comes next is a coin's toss: 5/6 can be right, and the loss is log(2)/3.
    EXPECT_NEAR(after.top1, 5.0 / 6, 0.03);
    EXPECT_NEAR(after.loss, std::log(2.0) / 3, 0.05);
  }
}

}  // namespace data_text_test
}  // namespace grapevine
