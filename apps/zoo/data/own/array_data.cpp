#include "apps/zoo/data/own/array_data.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "apps/zoo/data/images/pixels.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMostLabels = std::int64_t{1} << 24;  // classes or tokens: exact as floats

bool whole(const at::Tensor& t) { return at::isIntegralType(t.scalar_type(), /*bool*/ true); }

std::string array_shape(const at::Tensor& t) {
  std::ostringstream out;
  out << t.sizes();
  return out.str();
}

class ArrayData final : public DataSet {
 public:
  ArrayData(DataInfo info, Arrays arrays) : info_(std::move(info)), arrays_(std::move(arrays)) {}

  const DataInfo& info() const override { return info_; }

  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t /*augment_seed*/) const override {
    check_indices(info_, split, indices);
    const bool train = split == Split::train;
    const at::Tensor index = at::tensor(at::IntArrayRef(indices), at::TensorOptions(at::kLong));
    Batch batch;
    const at::Tensor& x = train ? arrays_.train_x : arrays_.test_x;
    const at::Tensor& y = train ? arrays_.train_y : arrays_.test_y;
    batch.input = x.index_select(0, index).to(at::kFloat);
    if (x.scalar_type() == at::kByte && info_.vocabulary == 0) batch.input.div_(255);
    batch.target =
        y.index_select(0, index).to(info_.task == Task::classification ? at::kLong : at::kFloat);
    if (info_.task == Task::regression)
      batch.target = batch.target.view({static_cast<std::int64_t>(indices.size()), info_.classes});
    return batch;
  }

 private:
  // Constant after construction.
  DataInfo info_;
  Arrays arrays_;
};

// Values that become numbers of a batch in the same way: bytes are divided by 255, and other whole
// numbers may be tokens.
enum class ValueKind { bytes, whole, floating };

ValueKind kind_of(const at::Tensor& t) {
  if (t.scalar_type() == at::kByte) return ValueKind::bytes;
  return whole(t) ? ValueKind::whole : ValueKind::floating;
}

// Nothing of another type can be a number of a batch.
Expected<void> check_type(const std::string& where, const char* name, const at::Tensor& t) {
  if (whole(t) || at::isFloatingType(t.scalar_type())) return {};
  return bad_input(where + ": " + name + " is " + c10::toString(t.scalar_type()) +
                   " where whole or floating-point numbers are needed");
}

Expected<void> check_pair(const std::string& where, const char* x_name, const at::Tensor& x,
                          const char* y_name, const at::Tensor& y) {
  if (auto numbers = check_type(where, x_name, x); !numbers) return numbers;
  if (auto numbers = check_type(where, y_name, y); !numbers) return numbers;
  if (x.dim() < 2)
    return bad_input(where + ": " + x_name + " has the shape " + array_shape(x) +
                     ", one array of samples is needed: [samples, …]");
  if (y.dim() < 1 || y.dim() > 2 || x.size(0) != y.size(0))
    return bad_input(where + ": " + y_name + " has the shape " + array_shape(y) + ", " + x_name +
                     " " + array_shape(x) + ": give a label, or numbers, for each sample");
  if (x.size(0) < 1) return bad_input(where + ": " + x_name + " has no samples: give some");
  for (const auto& [name, t] : {std::pair(x_name, x), std::pair(y_name, y)})
    if (t.numel() < 1)
      return bad_input(where + ": " + name + " has the shape " + array_shape(t) +
                       ": its samples hold no values");
  // Labels in a column. Sequences of one step have the same shape, and tokens in x.
  if (whole(y) && y.dim() == 2 && y.size(1) == 1 && x.sizes() != y.sizes())
    return bad_input(where + ": " + y_name + " has the shape " + array_shape(y) +
                     ", labels have one dimension: give " + y_name + "[:, 0]");
  return {};
}

Expected<void> check_splits(const std::string& where, const Arrays& a) {
  if (auto fits = check_pair(where, "train_x", a.train_x, "train_y", a.train_y); !fits) return fits;
  if (!a.test_x.defined()) return {};
  if (auto fits = check_pair(where, "test_x", a.test_x, "test_y", a.test_y); !fits) return fits;
  if (a.test_x.sizes().slice(1) != a.train_x.sizes().slice(1) ||
      a.test_y.sizes().slice(1) != a.train_y.sizes().slice(1) ||
      whole(a.test_y) != whole(a.train_y))
    return bad_input(where + ": the samples of the test split, " + array_shape(a.test_x) + " and " +
                     array_shape(a.test_y) + ", are of another shape or type than those for " +
                     "training, " + array_shape(a.train_x) + " and " + array_shape(a.train_y));
  if (kind_of(a.test_x) != kind_of(a.train_x))
    return bad_input(where + ": test_x is " + c10::toString(a.test_x.scalar_type()) +
                     " and train_x " + c10::toString(a.train_x.scalar_type()) +
                     ", which are not read alike: give both the same type");
  return {};
}

// One more than the largest number in the arrays of both splits, none of which is below 0.
Expected<std::int64_t> count_values(const std::string& where, const std::string& name,
                                    const at::Tensor& train, const at::Tensor& test) {
  std::int64_t most = 0;
  for (const at::Tensor& each : {train, test}) {
    if (!each.defined()) continue;
    const auto least = each.min().item<std::int64_t>();
    if (least < 0)
      return bad_input(where + ": " + name + " holds " + std::to_string(least) +
                       ": whole numbers from 0 are needed");
    most = std::max(most, each.max().item<std::int64_t>());
  }
  if (most >= kMostLabels)
    return bad_input(where + ": " + name + " holds " + std::to_string(most) + ": at most " +
                     std::to_string(kMostLabels - 1) + " can be used");
  return most + 1;
}

// Numbers of tokens: integers of more than a byte, none below 0, with labels.
bool are_tokens(const Arrays& a) {
  const at::ScalarType type = a.train_x.scalar_type();
  const bool integers = type == at::kShort || type == at::kInt || type == at::kLong;
  return integers && a.train_x.dim() == 2 && whole(a.train_y) &&
         a.train_x.min().item<std::int64_t>() >= 0;
}

}  // namespace

Expected<std::shared_ptr<const DataSet>> make_array_data(const std::string& name,
                                                         const std::string& where, Arrays arrays) {
  if (auto fits = check_splits(where, arrays); !fits) return fits.error();
  DataInfo info;
  info.name = name;
  info.sample_shape = arrays.train_x.sizes().slice(1).vec();
  info.train_size = arrays.train_x.size(0);
  info.test_size = arrays.test_x.defined() ? arrays.test_x.size(0) : 0;
  info.task = whole(arrays.train_y) ? Task::classification : Task::regression;
  if (info.task == Task::regression) {
    info.classes = arrays.train_y.dim() == 2 ? arrays.train_y.size(1) : 1;
  } else {
    auto classes = count_values(where, "y", arrays.train_y, arrays.test_y);
    if (!classes) return classes.error();
    info.classes = *classes;
    info.target_shape = arrays.train_y.sizes().slice(1).vec();
  }
  if (are_tokens(arrays)) {
    auto vocabulary = count_values(where, "x", arrays.train_x, arrays.test_x);
    if (!vocabulary) return vocabulary.error();
    info.vocabulary = *vocabulary;
    // With a label at each step: the next token, mostly.
    if (info.target_shape == info.sample_shape)
      info.classes = info.vocabulary = std::max(*vocabulary, info.classes);
  }
  return std::shared_ptr<const DataSet>(
      std::make_shared<ArrayData>(std::move(info), std::move(arrays)));
}

}  // namespace grapevine
