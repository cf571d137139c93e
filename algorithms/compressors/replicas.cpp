#include "algorithms/compressors/replicas.hpp"

#include <ATen/ATen.h>

#include "algorithms/kernels/kernels.hpp"
#include "messages/check.hpp"

namespace grapevine {

Replicas::Replicas(const CompressionSettings& settings, std::int64_t d, at::Device device,
                   std::int64_t vectors)
    : d_(d),
      vectors_(vectors),
      options_(at::TensorOptions(at::kFloat).device(device)),
      error_feedback_(settings.error_feedback),
      compressor_(make_compressor(settings)) {}

std::vector<Packed> Replicas::differences(const at::Tensor& x, Rank key, double epoch, Rng& rng) {
  at::Tensor& own = at(own_, key);
  if (!error_feedback_) own.zero_();
  if (!memory_.defined()) memory_ = at::empty({vectors_ * d_}, options_);
  kernels::subtract_into(memory_, x, own);
  std::vector<Packed> difference;
  for (std::int64_t i = 0; i < vectors_; ++i) {
    difference.push_back(compressor_->pack(part(memory_, i), epoch, rng));
    fold(part(own, i), difference.back());
  }
  return difference;
}

void Replicas::take_in(Rank peer, const std::vector<Packed>& difference) {
  GRAPEVINE_CHECK(static_cast<std::int64_t>(difference.size()) == vectors_, "a difference of ",
                  difference.size(), " vectors to a replica of ", vectors_);
  at::Tensor& replica = at(peers_, peer);
  if (!error_feedback_) replica.zero_();
  for (std::int64_t i = 0; i < vectors_; ++i)
    fold(part(replica, i), difference[static_cast<std::size_t>(i)]);
}

at::Tensor& Replicas::at(std::map<Rank, at::Tensor>& replicas, Rank key) const {
  at::Tensor& replica = replicas[key];
  if (!replica.defined()) replica = at::zeros({vectors_ * d_}, options_);
  return replica;
}

void Replicas::fold(at::Tensor replica, const Packed& packed) const {
  const auto folded = compressor_->fold(replica, packed, 1);
  GRAPEVINE_CHECK(folded.ok(), folded.error().message);
}

void Replicas::fields(Archive& a) {
  const auto one = [this](Archive& inner, at::Tensor& replica) {
    inner.needs("x");
    inner.vector("x", replica, vectors_ * d_);
  };
  a.keyed("own.keys", "own.", own_, one);
  a.keyed("peers.keys", "peers.", peers_, one);
}

}  // namespace grapevine
