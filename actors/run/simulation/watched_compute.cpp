#include "actors/run/simulation/watched_compute.hpp"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

namespace grapevine {
namespace {

class WatchedCompute final : public Compute {
 public:
  WatchedCompute(std::shared_ptr<Compute> inner,
                 std::function<void(Step, const FrozenTensor&)> seen)
      : inner_(std::move(inner)), seen_(std::move(seen)) {}

  std::int64_t dimension() const override { return inner_->dimension(); }
  FrozenTensor initial_parameters() const override { return inner_->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return inner_->initial_buffers(); }
  Gradient gradient(GradientRequest request) override {
    Gradient made = inner_->gradient(std::move(request));
    if (made.error.empty()) seen_(made.step, made.value);
    return made;
  }
  Gradient gradient_in_parts(GradientRequest request, const GivePart& give) override {
    std::vector<FrozenTensor> parts;  // the last one first
    Gradient made = inner_->gradient_in_parts(std::move(request), [&](GradientPart part) {
      parts.push_back(part.value);
      give(std::move(part));
    });
    if (made.error.empty()) seen_(made.step, parts.empty() ? made.value : whole(made, parts));
    return made;
  }
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    return inner_->evaluate(z, buffers);
  }
  bool reads() const override { return inner_->reads(); }

 private:
  static FrozenTensor whole(const Gradient& made, const std::vector<FrozenTensor>& parts) {
    std::vector<at::Tensor> all{made.value.read()};
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) all.push_back(part->read());
    return FrozenTensor::freeze(at::cat(all));
  }

  const std::shared_ptr<Compute> inner_;
  const std::function<void(Step, const FrozenTensor&)> seen_;
};

}  // namespace

std::shared_ptr<Compute> watched_compute(std::shared_ptr<Compute> inner,
                                         std::function<void(Step, const FrozenTensor&)> seen) {
  return std::make_shared<WatchedCompute>(std::move(inner), std::move(seen));
}

}  // namespace grapevine
