// tokens:DIR[,type=uint16|uint32][,length=T]: the tokens of train.bin and val.bin, plain
// little-endian numbers, mapped. A sample is T tokens in a row (256), its labels are the tokens one
// further. Samples do not overlap. The vocabulary is the largest token and one more.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "apps/zoo/data/images/pixels.hpp"
#include "apps/zoo/data/makers.hpp"
#include "apps/zoo/data/own/mapped_file.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kUsualLength = 256;
constexpr std::int64_t kLongestWindow = 1 << 20;
constexpr std::uint32_t kMostTokens = 1U << 24;  // exact as floats

struct TokensPath {
  std::string folder;
  std::int64_t length = kUsualLength;
  std::size_t width = 2;  // bytes of a token
};

// Settings stand at the end: a folder may have commas of its own.
Expected<TokensPath> parse_tokens_path(const std::string& text) {
  TokensPath path;
  path.folder = text;
  for (;;) {
    const auto comma = path.folder.rfind(',');
    if (comma == std::string::npos) return path;
    const std::string setting = path.folder.substr(comma + 1);
    const Error wrong = bad_input("tokens:" + text + ": '" + setting +
                                  "': expected type=uint16, type=uint32 or length=T with T from 1 "
                                  "to " +
                                  std::to_string(kLongestWindow));
    if (setting.rfind("type=", 0) == 0) {
      if (setting != "type=uint16" && setting != "type=uint32") return wrong;
      path.width = setting == "type=uint32" ? 4 : 2;
    } else if (setting.rfind("length=", 0) == 0) {
      const std::string_view length = std::string_view(setting).substr(std::strlen("length="));
      path.length = number_in<decltype(path.length)>(length).value_or(0);
      if (path.length < 1 || path.length > kLongestWindow) return wrong;
    } else {
      return path;
    }
    path.folder.resize(comma);
  }
}

// The tokens of a file.
class TokenFile {
 public:
  static Expected<TokenFile> open(const std::string& path, std::size_t width) {
    auto file = MappedFile::open(path);
    if (!file) return file.error();
    if ((*file)->size() % width != 0)
      return bad_input(path + ": its " + std::to_string((*file)->size()) +
                       " bytes are no whole tokens of " + std::to_string(width) +
                       " bytes: is the file whole, and of that type?");
    return TokenFile(*std::move(file), width);
  }

  std::int64_t size() const { return static_cast<std::int64_t>(file_->size() / width_); }

  std::uint32_t at(std::int64_t i) const {
    const std::uint8_t* byte = file_->data() + static_cast<std::size_t>(i) * width_;
    std::uint32_t token = std::uint32_t{byte[0]} | std::uint32_t{byte[1]} << 8;
    if (width_ == 4) token |= std::uint32_t{byte[2]} << 16 | std::uint32_t{byte[3]} << 24;
    return token;
  }

  std::uint32_t largest() const {
    std::uint32_t most = 0;
    for (std::int64_t i = 0; i < size(); ++i) most = std::max(most, at(i));
    return most;
  }

 private:
  TokenFile(std::shared_ptr<const MappedFile> file, std::size_t width)
      : file_(std::move(file)), width_(width) {}

  std::shared_ptr<const MappedFile> file_;
  std::size_t width_;
};

class Tokens final : public DataSet {
 public:
  Tokens(TokenFile train, std::optional<TokenFile> test, std::int64_t length,
         std::int64_t vocabulary)
      : train_(std::move(train)), test_(std::move(test)) {
    info_.name = "tokens";
    info_.task = Task::classification;
    info_.sample_shape = info_.target_shape = {length};
    info_.vocabulary = info_.classes = vocabulary;
    info_.train_size = (train_.size() - 1) / length;
    info_.test_size = test_ ? (test_->size() - 1) / length : 0;
  }

  const DataInfo& info() const override { return info_; }

  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t /*augment_seed*/) const override {
    check_indices(info_, split, indices);
    const TokenFile& file = split == Split::train ? train_ : *test_;
    const std::int64_t length = info_.sample_shape[0];
    const auto size = static_cast<std::int64_t>(indices.size());
    Batch batch{at::empty({size, length}, at::kFloat), at::empty({size, length}, at::kLong)};
    auto* input = batch.input.data_ptr<float>();
    auto* target = batch.target.data_ptr<std::int64_t>();
    for (const std::int64_t index : indices)
      for (std::int64_t i = index * length; i < (index + 1) * length; ++i) {
        *input++ = static_cast<float>(file.at(i));
        *target++ = file.at(i + 1);
      }
    return batch;
  }

 private:
  // Constant after construction.
  TokenFile train_;
  std::optional<TokenFile> test_;
  DataInfo info_;
};

Expected<void> check_tokens(const std::string& path, const TokenFile& file, std::int64_t length,
                            std::uint32_t largest) {
  if (file.size() <= length)
    return bad_input(path + ": has " + std::to_string(file.size()) + " tokens: at least " +
                     std::to_string(length + 1) +
                     " are needed for one sample, or a smaller length=");
  if (largest >= kMostTokens)
    return bad_input(path + ": holds the token " + std::to_string(largest) + ": at most " +
                     std::to_string(kMostTokens - 1) +
                     " can be used; is the file of another type (type=uint16, type=uint32)?");
  return {};
}

}  // namespace

MadeDataSet make_tokens(const std::string& text, const DataOptions& /*options*/) {
  const auto path = parse_tokens_path(text);
  if (!path) return path.error();
  const std::filesystem::path folder(path->folder);
  std::error_code none;
  if (!std::filesystem::is_directory(folder, none))
    return bad_input("tokens:" + path->folder + ": there is no such folder: check the path");
  const std::string train_path = (folder / "train.bin").string();
  const std::string test_path = (folder / "val.bin").string();
  auto train = TokenFile::open(train_path, path->width);
  if (!train) return train.error();
  std::uint32_t largest = train->largest();
  if (auto fits = check_tokens(train_path, *train, path->length, largest); !fits)
    return fits.error();
  std::optional<TokenFile> test;
  if (std::filesystem::exists(test_path, none)) {
    auto opened = TokenFile::open(test_path, path->width);
    if (!opened) return opened.error();
    largest = std::max(largest, opened->largest());
    if (auto fits = check_tokens(test_path, *opened, path->length, largest); !fits)
      return fits.error();
    test = *std::move(opened);
  }
  return MadeDataSet(std::make_shared<Tokens>(*std::move(train), std::move(test), path->length,
                                              std::int64_t{largest} + 1));
}

}  // namespace grapevine
