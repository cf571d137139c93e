// text:FILE: a text, plain or gzipped, to predict each character from those before it. A character
// is a byte; the vocabulary is the bytes that the file holds, in rising order. A sample is 64
// characters in a row, its labels are the characters one further. Samples do not overlap; the last
// tenth of them is for testing.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "apps/zoo/data/file_bytes.hpp"
#include "apps/zoo/data/images/pixels.hpp"
#include "apps/zoo/data/makers.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kSteps = 64;
constexpr std::int64_t kFewestSamples = 10;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 32;

class Text final : public DataSet {
 public:
  // REQUIRES: at least kFewestSamples samples.
  explicit Text(const Bytes& text) : tokens_(text.size()) {
    std::array<std::uint8_t, 256> token{};
    std::array<bool, 256> used{};
    for (const std::uint8_t byte : text) used[byte] = true;
    std::int64_t vocabulary = 0;
    for (std::size_t byte = 0; byte < used.size(); ++byte)
      if (used[byte]) token[byte] = static_cast<std::uint8_t>(vocabulary++);
    for (std::size_t i = 0; i < text.size(); ++i) tokens_[i] = token[text[i]];
    const std::int64_t samples = (static_cast<std::int64_t>(text.size()) - 1) / kSteps;
    info_.name = "text";
    info_.task = Task::classification;
    info_.sample_shape = {kSteps};
    info_.target_shape = {kSteps};
    info_.vocabulary = vocabulary;
    info_.classes = vocabulary;
    info_.test_size = samples / 10;
    info_.train_size = samples - info_.test_size;
  }

  const DataInfo& info() const override { return info_; }

  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t /*augment_seed*/) const override {
    check_indices(info_, split, indices);
    const auto size = static_cast<std::int64_t>(indices.size());
    Batch batch{at::empty({size, kSteps}, at::kFloat), at::empty({size, kSteps}, at::kLong)};
    auto* input = batch.input.data_ptr<float>();
    auto* target = batch.target.data_ptr<std::int64_t>();
    const std::int64_t first = split == Split::train ? 0 : info_.train_size;
    for (const std::int64_t index : indices) {
      const std::uint8_t* from = tokens_.data() + (first + index) * kSteps;
      input = std::copy(from, from + kSteps, input);
      target = std::copy(from + 1, from + kSteps + 1, target);
    }
    return batch;
  }

 private:
  // Constant after construction.
  std::vector<std::uint8_t> tokens_;
  DataInfo info_;
};

}  // namespace

MadeDataSet make_text(const std::string& path, const DataOptions& /*options*/) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return bad_input("text:" + path + ": the file does not exist: check the path");
  if (std::filesystem::is_directory(path, ignored))
    return bad_input("text:" + path + ": is a folder: give a text file");
  const auto text = read_maybe_gzipped(path, kMostBytes);
  if (!text) return text.error();
  constexpr std::size_t kFewest = kFewestSamples * kSteps + 1;
  if (text->size() < kFewest)
    return bad_input("text:" + path + ": holds " + std::to_string(text->size()) +
                     " characters: at least " + std::to_string(kFewest) + " are needed");
  if (std::all_of(text->begin(), text->end(), [&](auto byte) { return byte == text->front(); }))
    return bad_input("text:" + path +
                     ": all its characters are the same: there is nothing to learn");
  return MadeDataSet(std::make_shared<Text>(*text));
}

}  // namespace grapevine
