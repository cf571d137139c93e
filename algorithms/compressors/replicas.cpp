#include "algorithms/compressors/replicas.hpp"

#include <ATen/ATen.h>

#include "algorithms/kernels/kernels.hpp"
#include "messages/check.hpp"

namespace grapevine {

Replicas::Replicas(const CompressionSettings& settings, std::int64_t d, at::Device device)
    : d_(d),
      options_(at::TensorOptions(at::kFloat).device(device)),
      error_feedback_(settings.error_feedback),
      compressor_(make_compressor(settings)) {}

Packed Replicas::difference(const at::Tensor& x, Rank key, double epoch, Rng& rng) {
  at::Tensor& own = at(own_, key);
  if (!error_feedback_) own.zero_();
  if (!memory_.defined()) memory_ = at::empty({d_}, options_);
  kernels::subtract_into(memory_, x, own);
  Packed packed = compressor_->pack(memory_, epoch, rng);
  fold(own, packed);
  return packed;
}

void Replicas::take_in(Rank peer, const Packed& packed) {
  at::Tensor& replica = at(peers_, peer);
  if (!error_feedback_) replica.zero_();
  fold(replica, packed);
}

at::Tensor& Replicas::at(std::map<Rank, at::Tensor>& replicas, Rank key) const {
  at::Tensor& replica = replicas[key];
  if (!replica.defined()) replica = at::zeros({d_}, options_);
  return replica;
}

void Replicas::fold(at::Tensor& replica, const Packed& packed) const {
  const auto folded = compressor_->fold(replica, packed, 1);
  GRAPEVINE_CHECK(folded.ok(), folded.error().message);
}

void Replicas::fields(Archive& a) {
  const auto one = [this](Archive& inner, at::Tensor& replica) {
    inner.needs("x");
    inner.vector("x", replica, d_);
  };
  a.keyed("own.keys", "own.", own_, one);
  a.keyed("peers.keys", "peers.", peers_, one);
}

}  // namespace grapevine
