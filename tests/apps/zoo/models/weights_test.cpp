// Files of weights that were damaged on their way.
#include "apps/zoo/weights.hpp"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/apps/process.hpp"

namespace grapevine {
namespace weights_test {

namespace fs = std::filesystem;

// A dict of one tensor, as model.pt has it.
std::string saved_dict(const at::Tensor& tensor) {
  c10::impl::GenericDict dict(at::StringType::get(), at::TensorType::get());
  dict.insert("weight", tensor);
  const std::vector<char> bytes = torch::jit::pickle_save(dict);
  return {bytes.begin(), bytes.end()};
}

class WeightsFile : public testing::Test {
 protected:
  Expected<Weights> read(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return read_weights(path_.string());
  }

  const TemporaryDirectory folder_;
  const fs::path path_ = folder_.path() / "model.pt";
};

TEST_F(WeightsFile, ReadsBackWhatWasSaved) {
  for (const std::int64_t size : {1, 1000, 300'000}) {
    const at::Tensor tensor = at::rand({size});
    const auto weights = read(saved_dict(tensor));
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_TRUE(weights->at("weight").equal(tensor));
  }
}

// As Python's pickle writes it: {"a": 1} with SETITEM, which LibTorch does not read.
TEST_F(WeightsFile, ADictOfOneEntryIsNamed) {
  const std::string pickle(
      "\x80\x02}q\x00X\x01\x00\x00\x00"
      "aK\x01s.",
      15);
  std::string bytes;
  {
    caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, std::size_t size) {
      bytes.append(static_cast<const char*>(data), size);
      return size;
    });
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    writer.writeEndOfFile();
  }
  const auto weights = read(bytes);
  ASSERT_FALSE(weights.ok());
  EXPECT_NE(weights.error().message.find("a dict of one entry alone"), std::string::npos)
      << weights.error().message;
}

// One bit of the values: the file can be read, and has another model.
TEST_F(WeightsFile, AFlippedBitIsDamage) {
  const at::Tensor tensor = at::full({1000}, 0.75, at::kFloat);
  const std::string whole = saved_dict(tensor);
  const std::string values(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  const std::size_t begin = whole.find(values);
  ASSERT_NE(begin, std::string::npos);
  for (const std::size_t at : {begin, begin + 1999, begin + values.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    const auto weights = read(damaged);
    ASSERT_FALSE(weights.ok()) << "byte " << at;
    EXPECT_EQ(weights.error().code, Errc::bad_input);
    EXPECT_NE(weights.error().message.find("model.pt: is damaged"), std::string::npos)
        << weights.error().message;
    EXPECT_NE(weights.error().message.find("data/0"), std::string::npos) << weights.error().message;
  }
}

// Whatever the damage is: an error, or the weights that were saved.
TEST_F(WeightsFile, NoDamageIsOverlooked) {
  const at::Tensor tensor = at::arange(300, at::kFloat);
  const std::string whole = saved_dict(tensor);
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const auto weights = read(damaged);
    if (!weights.ok()) continue;
    ASSERT_EQ(weights->count("weight"), 1U) << "byte " << at;
    EXPECT_TRUE(weights->at("weight").equal(tensor)) << "byte " << at;
  }
  for (std::size_t size = 0; size < whole.size(); size += 97)
    EXPECT_FALSE(read(whole.substr(0, size)).ok()) << size << " bytes";
}

}  // namespace weights_test
}  // namespace grapevine
