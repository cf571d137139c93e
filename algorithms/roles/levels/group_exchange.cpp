#include "algorithms/roles/levels/group_exchange.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <utility>

#include "algorithms/roles/messages_of.hpp"

namespace grapevine {

GroupExchange::GroupExchange(std::vector<Rank> members, Rank head, Rank rank)
    : members_(std::move(members)),
      head_(head),
      position_(static_cast<std::int32_t>(std::lower_bound(members_.begin(), members_.end(), rank) -
                                          members_.begin())) {}

void GroupExchange::start(Env& env, const Stamp& stamp, std::int64_t operation, at::Tensor vector) {
  ring_.emplace(members_, position_, operation);
  std::vector<OutgoingMessage> out;
  append(out, ring_->start(std::move(vector)));
  for (Chunk& chunk : early_.take(operation)) append(out, ring_->on_chunk(std::move(chunk)));
  send_all(env, stamp, std::move(out));
  done() ? record_mean(env, stamp)
         : env.record({EventKind::wait_begin, awaited().from, stamp, stamp.step, 0, 0});
}

void GroupExchange::on_chunk(Env& env, const Stamp& stamp, Chunk chunk) {
  if (!ring_ || chunk.operation != ring_->operation()) return early_.hold(std::move(chunk));
  std::vector<OutgoingMessage> out;
  append(out, ring_->on_chunk(std::move(chunk)));
  send_all(env, stamp, std::move(out));
  if (!done()) return;
  env.record({EventKind::wait_end, -1, stamp, stamp.step, 0, 0});
  record_mean(env, stamp);
}

void GroupExchange::record_mean(Env& env, const Stamp& stamp) const {
  env.record({EventKind::reduced, -1, stamp, stamp.step, 0, 0, ring_->operation(), members_});
}

at::Tensor GroupExchange::take() {
  at::Tensor mean = ring_->take_result();
  // Divided: the rounding of 1/R would move models by one factor in every mean.
  mean.div_(static_cast<double>(members_.size()));
  ring_.reset();
  return mean;
}

void GroupExchange::close(Env& env, const Stamp& stamp) {
  if (!running()) return;
  if (!done()) env.record({EventKind::wait_end, -1, stamp, stamp.step, 0, 0});
  ring_.reset();
}

void GroupExchange::publish(Env& env, const Stamp& stamp, const Parameters& parameters) const {
  for (const Rank member : members_)
    if (member != head()) env.send(member, stamp, parameters);
}

bool GroupExchange::is_from_head(const Envelope& envelope, std::int64_t d) const {
  const auto* parameters = std::get_if<Parameters>(&envelope.payload);
  return parameters != nullptr && envelope.from == head() && !is_head() &&
         parameters->x.numel() == d && std::isfinite(parameters->epoch);
}

void GroupExchange::fields(Archive& a, std::int64_t operation, std::int64_t d) {
  if (a.present("ring", ring_, members_, position_, operation)) {
    a.part("ring", *ring_);
    a.require(!a.ok() || (ring_->started() && ring_->elements() == d), "ring",
              "does not fit the model");
  }
  a.part("early", early_);
  if (!a.present("next", next_)) return;
  a.nested("next", [&](Archive& inner) {
    inner.whole("step", next_->step, 0, std::numeric_limits<std::int64_t>::max());
    inner.flag("last", next_->last);
    inner.number("epoch", next_->epoch);
    inner.needs("x");
    inner.vector("x", next_->x, d);
  });
}

}  // namespace grapevine
