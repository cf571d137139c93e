// npy:, tensors: and tokens:, the data of users.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <torch/csrc/jit/serialization/pickle.h>

#include "actors/record/pickle_dict.hpp"
#include "apps/zoo/data.hpp"
#include "apps/zoo/data/own/npy_file.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/zoo/data/own/npy_writer.hpp"

namespace grapevine {
namespace own_data_test {

namespace fs = std::filesystem;
using testing_apps::npy_bytes;
using testing_apps::write_npy;

std::string error_of(const std::string& spec) {
  const auto made = make_data_set(spec, {});
  EXPECT_FALSE(made.ok()) << spec;
  if (made.ok()) return "";
  EXPECT_EQ(made.error().code, Errc::bad_input);
  return made.error().message;
}

void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

struct Sizes {
  std::int64_t train = 20, test = 8;
};

// Images of bytes with labels of 0 to 4.
void write_images(const fs::path& folder, const Sizes& sizes = {}) {
  for (const auto& [name, n] : {std::pair("train", sizes.train), std::pair("test", sizes.test)}) {
    const at::Tensor x = at::arange(n * 2 * 3 * 3).remainder(256).to(at::kByte);
    write_npy(folder / (std::string(name) + "_x.npy"), x.view({n, 2, 3, 3}));
    write_npy(folder / (std::string(name) + "_y.npy"), at::arange(n, at::kLong).remainder(5));
  }
}

TEST(NpyData, GivesBatchesOfMappedArrays) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  const auto data = make_data_set("npy:" + folder.path().string(), {});
  ASSERT_TRUE(data.ok()) << data.error().message;
  const DataInfo& info = (*data)->info();
  EXPECT_EQ(info.sample_shape, (std::vector<std::int64_t>{2, 3, 3}));
  EXPECT_EQ(info.classes, 5);
  EXPECT_EQ(info.train_size, 20);
  EXPECT_EQ(info.test_size, 8);
  const auto batch = (*data)->batch(Split::train, {19, 0, 19}, 0);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->input.scalar_type(), at::kFloat);
  EXPECT_EQ(batch->target[0].item<std::int64_t>(), 4);
  EXPECT_FLOAT_EQ(batch->input[0][0][0][0].item<float>(), static_cast<float>(19 * 18 % 256) / 255);
  EXPECT_TRUE(batch->input[0].equal(batch->input[2]));
}

TEST(NpyData, FloatsAreRegressionAndNoTestFilesNoSplit) {
  const TemporaryDirectory folder;
  write_npy(folder.path() / "train_x.npy", at::rand({6, 4}, at::kDouble));
  write_npy(folder.path() / "train_y.npy", at::rand({6, 2}));
  const auto data = make_data_set("npy:" + folder.path().string(), {});
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ((*data)->info().task, Task::regression);
  EXPECT_EQ((*data)->info().classes, 2);
  EXPECT_EQ((*data)->info().test_size, 0);
  const auto batch = (*data)->batch(Split::train, {1, 2}, 0);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->target.sizes(), at::IntArrayRef({2, 2}));
}

TEST(NpyData, IntegersOfOneShapeAreTokens) {
  const TemporaryDirectory folder;
  const at::Tensor tokens = at::arange(12, at::kLong).view({3, 4});
  write_npy(folder.path() / "train_x.npy", tokens);
  write_npy(folder.path() / "train_y.npy", tokens + 1);
  const auto data = make_data_set("npy:" + folder.path().string(), {});
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ((*data)->info().vocabulary, 13);
  EXPECT_EQ((*data)->info().target_shape, (std::vector<std::int64_t>{4}));
}

TEST(NpyData, NamesWhatIsWrong) {
  const TemporaryDirectory folder;
  const std::string spec = "npy:" + folder.path().string();
  expect_part(error_of("npy:/no/such"), "there is no such folder");
  expect_part(error_of(spec), "train_x.npy: cannot be read");
  write_images(folder.path());
  write_npy(folder.path() / "train_y.npy", at::zeros({19}, at::kLong));
  expect_part(error_of(spec), "train_y has the shape [19]");
  write_npy(folder.path() / "train_y.npy", at::full({20}, -1, at::kLong));
  expect_part(error_of(spec), "y holds -1");
  write_images(folder.path(), {20, 0});
  expect_part(error_of(spec), "test_x has no samples");
  write_images(folder.path());
  write_npy(folder.path() / "test_y.npy", at::zeros({8}));
  expect_part(error_of(spec), "of another shape or type");
  for (const at::ScalarType type : {at::kFloat, at::kInt}) {
    write_images(folder.path());
    write_npy(folder.path() / "test_x.npy", at::zeros({8, 2, 3, 3}).to(type));
    expect_part(error_of(spec), "and train_x Byte, which are not read alike");
  }
  write_images(folder.path());
  for (const char* name : {"train_y.npy", "test_y.npy"})
    write_npy(folder.path() / name, at::zeros({name[1] == 'r' ? 20 : 8, 1}, at::kLong));
  expect_part(error_of(spec), "train_y has the shape [20, 1]");
  expect_part(error_of(spec), "y[:, 0]");
}

TEST(NpyData, SamplesWithoutValuesAreRefused) {
  const TemporaryDirectory folder;
  const std::string spec = "npy:" + folder.path().string();
  const auto write = [&folder](const at::Tensor& x, const at::Tensor& y) {
    write_npy(folder.path() / "train_x.npy", x);
    write_npy(folder.path() / "train_y.npy", y);
  };
  for (const at::ScalarType type : {at::kFloat, at::kLong}) {
    write(at::zeros({30, 0}, type), at::zeros({30}, at::kLong));
    expect_part(error_of(spec), "train_x has the shape [30, 0]: its samples hold no values");
    write(at::zeros({30, 4}), at::zeros({30, 0}, type));
    expect_part(error_of(spec), "train_y has the shape [30, 0]: its samples hold no values");
  }
}

// The advice is what makes NumPy write a file that can be read.
TEST(NpyFile, SaysHowToWriteAnotherType) {
  const TemporaryDirectory folder;
  const fs::path path = folder.path() / "a.npy";
  for (const auto& [type, advice] :
       {std::pair<std::string, std::string>{">f4", "ARRAY.astype('<f4')"},
        {">f8", "ARRAY.astype('<f8')"},
        {">i2", "ARRAY.astype('<i2')"},
        {"<u8", "ARRAY.astype('int64')"},
        {">u8", "ARRAY.astype('int64')"},
        {"<c8", "numpy.save(FILE"}}) {
    std::ofstream(path, std::ios::binary)
        << npy_bytes("{'descr': '" + type + "', 'fortran_order': False, 'shape': (1,), }",
                     std::string(16, '\0'));
    const auto array = map_npy(path.string());
    ASSERT_FALSE(array.ok()) << type;
    expect_part(array.error().message, advice);
  }
}

TEST(NpyFile, ReadsAllTypesAndVersions) {
  const TemporaryDirectory folder;
  const fs::path path = folder.path() / "a.npy";
  for (const int version : {1, 2, 3}) {
    const std::string dict = "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }";
    std::ofstream(path, std::ios::binary)
        << npy_bytes(dict, std::string("\xff\xff\x01\0", 4), version);
    const auto array = map_npy(path.string());
    ASSERT_TRUE(array.ok()) << array.error().message;
    EXPECT_EQ((*array)[0].item<std::int64_t>(), 65535);
    EXPECT_EQ((*array)[1].item<std::int64_t>(), 1);
  }
  for (const at::ScalarType type : {at::kByte, at::kInt, at::kLong, at::kFloat, at::kDouble}) {
    const at::Tensor values = at::arange(6).to(type).view({2, 3});
    write_npy(path, values);
    const auto array = map_npy(path.string());
    ASSERT_TRUE(array.ok()) << array.error().message;
    EXPECT_TRUE(array->equal(values)) << type;
  }
}

TEST(NpyFile, RefusesDamagedFiles) {
  const TemporaryDirectory folder;
  const fs::path path = folder.path() / "a.npy";
  const auto complaint = [&path](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    const auto array = map_npy(path.string());
    EXPECT_FALSE(array.ok());
    return array.ok() ? std::string() : array.error().message;
  };
  const auto array = [](const std::string& type, const std::string& order,
                        const std::string& shape) {
    return npy_bytes(
        "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }",
        std::string(8, '\0'));
  };
  expect_part(complaint("PK\x03\x04 something else"), "is no .npy file");
  expect_part(complaint(array("<f4", "True", "(2,)")), "Fortran order");
  expect_part(complaint(array(">f4", "False", "(2,)")), "are not known");
  expect_part(complaint(array("<c8", "False", "(1,)")), "are not known");
  const std::string objects = complaint(array("|O", "False", "(1,)"));
  expect_part(objects, "Python objects");
  expect_part(objects,
              "numpy.save(FILE, ARRAY.astype('float32')), or 'int64' for labels and tokens");
  expect_part(complaint(array("<f4", "False", "(3,)")), "is cut off");
  expect_part(complaint(array("<f4", "False", "(99999999999, 99999999999)")), "is cut off");
  expect_part(complaint(array("<f4", "False", "(-2,)")), "no shape");
  expect_part(complaint(array("<f4", "False", "nothing")), "no shape");
  expect_part(complaint(array("<f4", "False", "(2,)").substr(0, 40)), "header is cut off");
}

TEST(TensorsData, ReadsADictOfTorchSave) {
  const TemporaryDirectory folder;
  const std::string path = (folder.path() / "data.pt").string();
  const auto save = [&path](const c10::Dict<std::string, at::Tensor>& dict) {
    const std::vector<char> bytes = pickle_dict(dict);
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("train_x", at::rand({5, 3}));
  save(dict);
  expect_part(error_of("tensors:" + path), "has no tensor 'train_y'");
  dict.insert("train_y", at::arange(5, at::kLong));
  save(dict);
  const auto data = make_data_set("tensors:" + path, {});
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ((*data)->info().classes, 5);
  EXPECT_EQ((*data)->info().test_size, 0);
  dict.insert_or_assign("train_x", at::zeros({5, 3}, at::kComplexFloat));
  save(dict);
  expect_part(error_of("tensors:" + path), "train_x is ComplexFloat where");
  dict.insert_or_assign("train_x", at::quantize_per_tensor(at::rand({5, 3}), 0.1, 0, at::kQInt8));
  save(dict);
  expect_part(error_of("tensors:" + path), "train_x is QInt8 where");
  dict.insert_or_assign("train_x", at::rand({5, 3}));
  dict.insert_or_assign("train_y", at::zeros({5}, at::kComplexFloat));
  save(dict);
  expect_part(error_of("tensors:" + path), "train_y is ComplexFloat where");
  expect_part(error_of("tensors:/no/such.pt"), "there is no such file");
  std::ofstream(path) << "not a dict";
  expect_part(error_of("tensors:" + path), "holds no dict of tensors");
}

template <class Token>
void write_tokens(const fs::path& path, const std::vector<Token>& tokens) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(Token)));
}

template <class Token>
void expect_windows(const std::string& settings) {
  const TemporaryDirectory folder;
  std::vector<Token> tokens(41);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(7 * i % 300);
  write_tokens(folder.path() / "train.bin", tokens);
  tokens.resize(9);
  write_tokens(folder.path() / "val.bin", tokens);
  const auto data = make_data_set("tokens:" + folder.path().string() + settings, {});
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ((*data)->info().train_size, 10);
  EXPECT_EQ((*data)->info().test_size, 2);
  EXPECT_EQ((*data)->info().vocabulary, 281);
  const auto batch = (*data)->batch(Split::train, {9, 1}, 0);
  ASSERT_TRUE(batch.ok());
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(batch->input[1][i].item<std::int64_t>(), 7 * (4 + i) % 300);
    EXPECT_EQ(batch->target[1][i].item<std::int64_t>(), 7 * (5 + i) % 300);
    EXPECT_EQ(batch->target[0][i].item<std::int64_t>(), 7 * (37 + i) % 300);
  }
}

TEST(TokensData, GivesWindows) {
  expect_windows<std::uint16_t>(",length=4");
  expect_windows<std::uint32_t>(",type=uint32,length=4");
  expect_windows<std::uint32_t>(",length=4,type=uint32");
}

TEST(TokensData, NamesWhatIsWrong) {
  const TemporaryDirectory folder;
  const std::string spec = "tokens:" + folder.path().string();
  expect_part(error_of("tokens:/no/such"), "there is no such folder");
  expect_part(error_of(spec), "train.bin: cannot be read");
  write_tokens<std::uint8_t>(folder.path() / "train.bin", {1, 2, 3});
  expect_part(error_of(spec), "no whole tokens of 2 bytes");
  write_tokens<std::uint16_t>(folder.path() / "train.bin", {1, 2, 3, 4});
  expect_part(error_of(spec), "has 4 tokens: at least 257 are needed");
  expect_part(error_of(spec + ",length=0"), "expected type=uint16");
  expect_part(error_of(spec + ",type=int8"), "expected type=uint16");
  write_tokens<std::uint32_t>(folder.path() / "train.bin", {1, 1U << 25, 3});
  expect_part(error_of(spec + ",type=uint32,length=1"), "holds the token 33554432");
}

// The errors and the help of `train` list them.
TEST(OwnData, IsListed) {
  const std::string message = error_of("numpy:x");
  for (const char* name : {"npy", "tensors", "tokens"}) expect_part(message, name);
  const ProcessResult help = run_process({"train", "--help"});
  for (const char* spec : {"npy:DIR", "tensors:FILE.pt", "tokens:DIR", "images:DIR"})
    EXPECT_NE(help.out.find(spec), std::string::npos) << spec << "\n" << help.out;
}

}  // namespace own_data_test
}  // namespace grapevine
