#include "algorithms/compressors/compressor.hpp"

#include <ATen/ops/zeros.h>

#include <utility>

#include "algorithms/compressors/compressor_type.hpp"
#include "algorithms/kernels/packed_error.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

// none: the vector itself.
class Plain final : public Compressor {
 public:
  bool unbiased() const override { return true; }
  bool any_device() const override { return true; }
  std::uint64_t bytes(std::int64_t d, double) const override {
    return 4 * static_cast<std::uint64_t>(d);
  }
  Packed pack(const at::Tensor& x, double, Rng&) const override {
    return {{}, FrozenTensor::copy_of(x), {}};
  }
  Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const override {
    if (packed.indices.defined() || packed.scales.defined() ||
        !is_flat_tensor(packed.values, at::kFloat, x.numel(), x.device()))
      return bad_packed("it is not of " + std::to_string(x.numel()) + " numbers");
    x.add_(packed.values.read(), factor);
    return {};
  }
};

// Brings vectors to where `inner` works: packed ones to x, or x to the host's memory and back.
class Placed final : public Compressor {
 public:
  explicit Placed(std::unique_ptr<const Compressor> inner) : inner_(std::move(inner)) {}

  bool unbiased() const override { return inner_->unbiased(); }
  bool any_device() const override { return inner_->any_device(); }
  bool sparse() const override { return inner_->sparse(); }
  std::uint64_t bytes(std::int64_t d, double epoch) const override {
    return inner_->bytes(d, epoch);
  }
  Packed pack(const at::Tensor& x, double epoch, Rng& rng) const override {
    return inner_->pack(any_device() ? x : x.cpu(), epoch, rng);
  }
  Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const override {
    if (x.is_cpu() || any_device()) return fold_there(x, packed, factor);
    at::Tensor host = x.cpu();
    const auto folded = fold_there(host, packed, factor);
    if (folded) x.copy_(host);
    return folded;
  }

 private:
  static FrozenTensor on(at::Device device, const FrozenTensor& t) {
    return t.defined() ? t.on(device) : t;
  }
  Expected<void> fold_there(at::Tensor& x, const Packed& packed, float factor) const {
    const at::Device there = x.device();
    if (!there.is_cpu() && packed.values.defined() && packed.values.device().is_cpu())
      if (const auto fits = check(packed, x.numel()); !fits) return fits;
    return inner_->fold(
        x, {on(there, packed.indices), on(there, packed.values), on(there, packed.scales)}, factor);
  }

  const std::unique_ptr<const Compressor> inner_;
};

const CompressorType& no_compressor() {
  static const CompressorType type = [] {
    CompressorType none;
    none.name = "none";
    none.make = [](const CompressionSettings&) { return std::make_unique<Plain>(); };
    return none;
  }();
  return type;
}

// The list of compressors.
std::vector<const CompressorType*>& all_compressors() {
  static std::vector<const CompressorType*> types = {
      &no_compressor(),   &top_k_compressor(), &random_k_compressor(), &fp16_compressor(),
      &bf16_compressor(), &int8_compressor(),  &sign_compressor()};
  return types;
}

const CompressorType& type_of(const CompressionSettings& settings) {
  for (const CompressorType* type : all_compressors())
    if (type->name == settings.name) return *type;
  GRAPEVINE_CHECK(false, "an unknown compressor: ", settings.name);
}

}  // namespace

Expected<void> Compressor::check(const Packed& packed, std::int64_t d) const {
  at::Tensor scratch = at::zeros({d}, at::kFloat);
  return fold(scratch, packed, 1);
}

const std::vector<const CompressorType*>& compressor_types() { return all_compressors(); }

Expected<void> register_compressor(const CompressorType& type) {
  for (const CompressorType* known : all_compressors())
    if (known->name == type.name)
      return bad_input("compressor '" + type.name + "' exists already: choose another name");
  all_compressors().push_back(&type);
  return {};
}

std::unique_ptr<const Compressor> make_compressor(const CompressionSettings& settings) {
  const CompressorType& type = type_of(settings);
  auto compressor = type.make(settings);
  GRAPEVINE_CHECK(compressor->sparse() == type.sparse, "compressor '", type.name,
                  "' is not as sparse as its type says");
  return std::make_unique<Placed>(std::move(compressor));
}

bool is_sparse(const CompressionSettings& settings) { return type_of(settings).sparse; }

bool works_on_any_device(const CompressionSettings& settings) {
  return type_of(settings).make(settings)->any_device();
}

bool keeps_magnitudes(const CompressionSettings& settings) {
  constexpr std::int64_t kNumbers = 1 << 20;
  return type_of(settings).make(settings)->bytes(kNumbers, 0) >=
         static_cast<std::uint64_t>(kNumbers);
}

std::vector<std::string> compressor_names() {
  std::vector<std::string> names;
  for (const CompressorType* type : all_compressors()) names.push_back(type->name);
  return names;
}

double default_consensus_step(const CompressionSettings& settings) {
  return type_of(settings).consensus_step(settings);
}

}  // namespace grapevine
