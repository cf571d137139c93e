// Samples that cannot be used, and data sets without them.
#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "apps/zoo/data.hpp"
#include "gpu/torch_error.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMostTries = 1000;     // samples in a row that cannot be used
constexpr std::size_t kMostDamageLines = 20;  // warnings

bool is_finite(const at::Tensor& t) {
  return !t.is_floating_point() || t.isfinite().all().item<bool>();
}

Expected<Batch> read_samples(const DataSet& data, Split split,
                             const std::vector<std::int64_t>& indices, std::uint64_t seed) {
  try {
    return data.batch(split, indices, seed);
  } catch (const std::exception& e) {
    return Error{Errc::failed, one_line(e)};
  }
}

class UndamagedData final : public DataSet {
 public:
  explicit UndamagedData(std::shared_ptr<const DataSet> data) : data_(std::move(data)) {}

  const DataInfo& info() const override { return data_->info(); }

  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t augment_seed) const override {
    auto batch = read_samples(*data_, split, indices, augment_seed);
    if (batch && is_finite(batch->input) && is_finite(batch->target)) return batch;
    std::vector<std::int64_t> usable;
    for (const std::int64_t index : indices) {
      auto instead = usable_one(split, index);
      if (!instead) return instead.error();
      usable.push_back(*instead);
    }
    return data_->batch(split, usable, augment_seed);
  }

 private:
  // `index`, or the next one that can be used.
  Expected<std::int64_t> usable_one(Split split, std::int64_t index) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = instead_.find({split, index});
    if (known != instead_.end()) return known->second;
    const std::int64_t size = split == Split::train ? info().train_size : info().test_size;
    std::int64_t candidate = index;
    for (std::int64_t i = 0; i < std::min(size, kMostTries); ++i) {
      const std::string damage = damage_of(*data_, split, candidate);
      if (damage.empty()) {
        instead_[{split, index}] = candidate;
        return candidate;
      }
      warn(split, candidate, damage);
      candidate = (candidate + 1) % size;
    }
    return bad_input("data '" + info().name + "': " + std::to_string(std::min(size, kMostTries)) +
                     " samples in a row are damaged: check it with 'grapevine data check'");
  }

  void warn(Split split, std::int64_t index, const std::string& damage) const {
    if (!warned_.insert({split, index}).second || warned_.size() > kMostDamageLines) return;
    spdlog::warn("skipped: {}{}", damage,
                 warned_.size() == kMostDamageLines ? "; no warnings of others follow" : "");
  }

  const std::shared_ptr<const DataSet> data_;
  // Guarded by mutex_.
  mutable std::mutex mutex_;
  mutable std::map<std::pair<Split, std::int64_t>, std::int64_t> instead_;
  mutable std::set<std::pair<Split, std::int64_t>> warned_;
};

}  // namespace

std::string damage_of(const DataSet& data, Split split, std::int64_t index) {
  const auto sample = read_samples(data, split, {index}, 0);
  if (!sample) return sample.error().message;
  const std::string name = std::string(split == Split::train ? "training" : "test") + " sample " +
                           std::to_string(index) + " of data '" + data.info().name + "'";
  if (!is_finite(sample->input)) return name + ": a value is not finite";
  if (!is_finite(sample->target)) return name + ": a target is not finite";
  return "";
}

std::shared_ptr<const DataSet> without_damaged(std::shared_ptr<const DataSet> data) {
  return std::make_shared<UndamagedData>(std::move(data));
}

}  // namespace grapevine
