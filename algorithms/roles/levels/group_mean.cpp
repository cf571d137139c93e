#include "algorithms/roles/levels/group_mean.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace grapevine {

std::vector<OutgoingMessage> GroupMean::start(std::int64_t operation, at::Tensor vector) {
  ring_.emplace(members_, position_, operation);
  std::vector<OutgoingMessage> out;
  append(out, ring_->start(std::move(vector)));
  for (Chunk& chunk : early_.take(operation)) append(out, ring_->on_chunk(std::move(chunk)));
  return out;
}

std::vector<OutgoingMessage> GroupMean::on_chunk(Chunk chunk) {
  std::vector<OutgoingMessage> out;
  if (ring_ && chunk.operation == ring_->operation())
    append(out, ring_->on_chunk(std::move(chunk)));
  else
    early_.hold(std::move(chunk));
  return out;
}

at::Tensor GroupMean::take() {
  at::Tensor mean = ring_->take_result();
  // Divided: the rounding of 1/R would move models by one factor in every mean.
  mean.div_(static_cast<double>(members_.size()));
  ring_.reset();
  return mean;
}

void GroupMean::fields(Archive& a, std::int64_t operation, std::int64_t d) {
  if (a.present("ring", ring_, members_, position_, operation)) {
    a.part("ring", *ring_);
    a.require(!a.ok() || (ring_->started() && ring_->elements() == d), "ring",
              "does not fit the model");
  }
  a.part("early", early_);
}

}  // namespace grapevine
