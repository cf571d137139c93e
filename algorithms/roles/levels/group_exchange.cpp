#include "algorithms/roles/levels/group_exchange.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <utility>

#include "algorithms/roles/messages_of.hpp"

namespace grapevine {

GroupExchange::GroupExchange(std::vector<Rank> members, Rank head, Rank rank, std::int64_t d)
    : members_(std::move(members)),
      head_(head),
      position_(static_cast<std::int32_t>(std::lower_bound(members_.begin(), members_.end(), rank) -
                                          members_.begin())),
      d_(d),
      sum_(make_exact_reduction(members_, position_, d, ExactReduce::automatic)) {}

void GroupExchange::start(Env& env, const Stamp& stamp, std::int64_t operation, at::Tensor vector) {
  operation_ = operation;
  send_all(env, stamp, sum_->start(operation, 0, std::move(vector), no_chance_));
  done() ? record_mean(env, stamp)
         : env.record({EventKind::wait_begin, awaited().front().from, stamp, stamp.step, 0, 0});
}

void GroupExchange::on_chunk(Env& env, const Stamp& stamp, Rank from, Chunk chunk) {
  const bool waits = running() && !done();
  send_all(env, stamp, sum_->on_message(from, std::move(chunk)));
  if (!waits || !done()) return;
  env.record({EventKind::wait_end, -1, stamp, stamp.step, 0, 0});
  record_mean(env, stamp);
}

void GroupExchange::record_mean(Env& env, const Stamp& stamp) const {
  env.record({EventKind::reduced, -1, stamp, stamp.step, 0, 0, operation_, members_});
}

at::Tensor GroupExchange::take() {
  at::Tensor mean = sum_->take_sum();
  // Divided: the rounding of 1/R would move models by one factor in every mean.
  return mean.div_(static_cast<double>(members_.size()));
}

void GroupExchange::close(Env& env, const Stamp& stamp) {
  if (!running()) return;
  if (!done()) env.record({EventKind::wait_end, -1, stamp, stamp.step, 0, 0});
  sum_->take_back();
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

void GroupExchange::fields(Archive& a, std::int64_t operation) {
  sum_->fields(a, operation, 0);
  if (a.loads() && running()) operation_ = operation;
  if (!a.present("next", next_)) return;
  a.nested("next", [&](Archive& inner) {
    inner.whole("step", next_->step, 0, std::numeric_limits<std::int64_t>::max());
    inner.flag("last", next_->last);
    inner.number("epoch", next_->epoch);
    inner.needs("x");
    inner.vector("x", next_->x, d_);
  });
}

}  // namespace grapevine
