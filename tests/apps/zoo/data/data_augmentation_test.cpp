#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <numeric>
#include <set>

#include "apps/zoo/data.hpp"

namespace grapevine {
namespace data_augmentation_test {

constexpr std::uint64_t kSeed = 11;

std::shared_ptr<const DataSet> glyphs(const std::string& augment) {
  DataOptions options;
  const auto parsed = parse_augmentation(augment);
  EXPECT_TRUE(parsed.ok()) << augment;
  options.augment = *parsed;
  const auto data = make_data_set("glyphs:64", options);
  EXPECT_TRUE(data.ok());
  return *data;
}

at::Tensor images(const DataSet& data, std::uint64_t seed) {
  std::vector<std::int64_t> all(64);
  std::iota(all.begin(), all.end(), 0);
  return data.batch(Split::train, all, seed)->input;
}

TEST(Augmentation, LeavesTestAndNoneAlone) {
  const at::Tensor plain = images(*glyphs("none"), 0);
  EXPECT_TRUE(images(*glyphs("none"), kSeed).equal(plain));
  EXPECT_TRUE(images(*glyphs("crop,flip"), 0).equal(plain));
  EXPECT_TRUE(images(*glyphs("crop,flip"), kSeed).equal(images(*glyphs("crop,flip"), kSeed)));
  EXPECT_FALSE(images(*glyphs("crop"), kSeed).equal(images(*glyphs("crop"), kSeed + 1)));
}

TEST(Augmentation, FlipsHalfOfThem) {
  const at::Tensor plain = images(*glyphs("none"), 0), flipped = images(*glyphs("flip"), kSeed);
  int mirrored = 0;
  for (std::int64_t i = 0; i < 64; ++i) {
    const bool same = flipped[i].equal(plain[i]);
    EXPECT_TRUE(same || flipped[i].equal(plain[i].flip({2}))) << i;
    mirrored += same ? 0 : 1;
  }
  EXPECT_GT(mirrored, 16);
  EXPECT_LT(mirrored, 48);
}

// Every cropped image is the image, moved by up to an eighth of its side, with black around it.
TEST(Augmentation, CropsOfThePaddedImage) {
  const at::Tensor plain = images(*glyphs("none"), 0), cropped = images(*glyphs("crop"), kSeed);
  const float black = plain.min().item<float>();
  std::set<std::pair<int, int>> seen;
  for (std::int64_t i = 0; i < 64; ++i) {
    bool found = false;
    for (int down = -3; down <= 3; ++down)
      for (int right = -3; right <= 3; ++right) {
        const at::Tensor padded = at::constant_pad_nd(plain[i], {3, 3, 3, 3}, black);
        if (!cropped[i].equal(padded.narrow(1, 3 - down, 28).narrow(2, 3 - right, 28))) continue;
        found = true;
        seen.insert({down, right});
      }
    EXPECT_TRUE(found) << i;
  }
  EXPECT_GT(seen.size(), 20U);
}

TEST(Augmentation, ResizedCropsKeepTheRange) {
  const at::Tensor plain = images(*glyphs("none"), 0);
  const at::Tensor cropped = images(*glyphs("random-resized-crop,flip"), kSeed);
  EXPECT_EQ(cropped.sizes(), plain.sizes());
  EXPECT_FALSE(cropped.equal(plain));
  constexpr float kRounding = 1e-5F;
  EXPECT_GE(cropped.min().item<float>(), plain.min().item<float>() - kRounding);
  EXPECT_LE(cropped.max().item<float>(), plain.max().item<float>() + kRounding);
}

TEST(Augmentation, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(parse_augmentation("crop,random-resized-crop").ok());
  EXPECT_FALSE(parse_augmentation("").ok());
  const auto unknown = parse_augmentation("flop");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("flip"), std::string::npos) << unknown.error().message;
  DataOptions options;
  options.augment = *parse_augmentation("flip");
  const auto data = make_data_set("sequences:64", options);
  ASSERT_FALSE(data.ok());
  EXPECT_NE(data.error().message.find("are no images"), std::string::npos) << data.error().message;
}

}  // namespace data_augmentation_test
}  // namespace grapevine
