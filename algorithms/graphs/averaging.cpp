#include "algorithms/graphs/averaging.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <utility>

#include "messages/check.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

using Kind = AveragingMessage::Kind;

struct MethodName {
  const char* name;
  AveragingMethod method;
};

constexpr MethodName kMethods[] = {{"push-sum", AveragingMethod::push_sum},
                                   {"symmetric", AveragingMethod::symmetric},
                                   {"bilateral", AveragingMethod::bilateral}};

class PushSumAverager : public Averager {
 public:
  using Averager::Averager;

  Messages begin_round(std::int64_t round) override {
    const std::vector<Rank>& destinations = topology_->out(round, rank_);
    held_.scale(1.0 / static_cast<double>(destinations.size() + 1));
    Messages messages;
    for (const Rank to : destinations) {
      messages.push_back({rank_, to, round, Kind::share, share_for(to)});
    }
    return messages;
  }

  Messages on_message(const AveragingMessage& message) override {
    held_.add(message.mass, 1);
    return {};
  }

  Mass ledger() const override { return held_; }
  bool concurrent() const override { return true; }

 protected:
  // The share for `to`, after held_ was divided.
  virtual Mass share_for(Rank to) { return held_; }
};

class RunningPushSumAverager final : public PushSumAverager {
 public:
  using PushSumAverager::PushSumAverager;

  Messages on_message(const AveragingMessage& message) override {
    Received& received = received_[message.from];
    // An overtaken message has an older sum than the newest one received.
    if (message.round <= received.round) return {};
    held_.add(message.mass, 1);
    held_.add(received.sum, -1);
    received = {message.mass, message.round};
    return {};
  }

  Mass ledger() const override {
    Mass mass = held_;
    for (const auto& [to, sum] : sent_) mass.add(sum, 1);
    for (const auto& [from, received] : received_) mass.add(received.sum, -1);
    return mass;
  }

 private:
  struct Received {
    Mass sum;
    std::int64_t round = -1;
  };

  Mass share_for(Rank to) override {
    Mass& sum = sent_[to];
    sum.add(held_, 1);
    return sum;
  }

  // Running sums by edge; std::map keeps every sum over them in one order.
  std::map<Rank, Mass> sent_;
  std::map<Rank, Received> received_;
};

class SymmetricAverager final : public Averager {
 public:
  using Averager::Averager;

  Messages begin_round(std::int64_t round) override {
    round_ = round;
    start_ = held_;
    Messages messages;
    for (const Rank to : topology_->neighbors(round, rank_)) {
      messages.push_back({rank_, to, round, Kind::share, start_});
    }
    return messages;
  }

  Messages on_message(const AveragingMessage& message) override {
    if (message.round != round_) return {};
    double weight = 0;
    for (const Shares::Link& link : topology_->symmetric_shares(round_, rank_).links)
      if (link.peer == message.from) weight = link.weight;
    held_.add(message.mass, weight);
    held_.add(start_, -weight);
    return {};
  }

  Mass ledger() const override { return held_; }
  bool concurrent() const override { return true; }

 private:
  std::int64_t round_ = -1;
  Mass start_;  // held_ as the round began
};

// An edge that carries both directions in a round is one exchange. Odd ranks are the active ones of
// bipartite graphs, where passive ranks never ask: no cycle of waits can form.
class BilateralAverager final : public Averager {
 public:
  using Averager::Averager;

  Messages begin_round(std::int64_t round) override {
    round_ = round;
    pending_.clear();
    for (const Rank to : topology_->out(round, rank_)) {
      if (asks(to)) pending_.push_back(to);
    }
    return next_request();
  }

  Messages on_message(const AveragingMessage& message) override {
    if (message.kind == Kind::request) return {serve(message)};
    Asked& asked = asked_[message.from];
    if (message.round <= asked.round) return {};
    held_.add(message.mass, -1);
    held_.add(asked.taken, 1);
    asked = {message.mass, message.round};
    return next_request();
  }

  Mass ledger() const override {
    Mass mass = held_;
    for (const auto& [from, served] : served_) mass.add(served.taken, -1);
    for (const auto& [to, asked] : asked_) mass.add(asked.taken, 1);
    return mass;
  }

  bool concurrent() const override { return false; }

 private:
  struct Asked {
    Mass taken;  // by the other end, as far as known here
    std::int64_t round = -1;
  };
  struct Served {
    Mass taken;    // from the other end, ever
    Mass unknown;  // the part that no acknowledged reply contained
    std::int64_t round = -1;
  };

  bool asks(Rank to) const {
    const std::vector<Rank>& back = topology_->in(round_, rank_);
    if (!std::binary_search(back.begin(), back.end(), to)) return true;
    const bool opposite = (rank_ + to) % 2 != 0;
    return opposite ? rank_ % 2 != 0 : rank_ < to;
  }

  Messages next_request() {
    if (pending_.empty()) return {};
    const Rank to = pending_.front();
    pending_.pop_front();
    return {{rank_, to, round_, Kind::request, held_, asked_[to].round}};
  }

  // Moves to the mean at once; the reply makes the other end follow.
  AveragingMessage serve(const AveragingMessage& request) {
    Served& served = served_[request.from];
    if (request.acknowledged == served.round) served.unknown = {};
    Mass half = request.mass;
    half.add(served.unknown, -1);
    half.add(held_, -1);
    half.scale(0.5);
    held_.add(half, 1);
    served.taken.add(half, 1);
    served.unknown.add(half, 1);
    served.round = request.round;
    return {rank_, request.from, request.round, Kind::reply, served.taken};
  }

  std::int64_t round_ = -1;
  std::deque<Rank> pending_;  // to ask in this round
  std::map<Rank, Asked> asked_;
  std::map<Rank, Served> served_;
};

Expected<void> check_arguments(const Topology& topology,
                               const std::vector<std::vector<double>>& values,
                               const AveragingOptions& options) {
  if (!(options.drop >= 0 && options.drop < 1)) {
    return bad_input("averaging: drop probability " + std::to_string(options.drop) +
                     ": use a value in [0, 1)");
  }
  if (values.size() != static_cast<std::size_t>(topology.ranks())) {
    return bad_input("averaging: " + std::to_string(values.size()) + " values for " +
                     std::to_string(topology.ranks()) + " ranks: give one to each");
  }
  for (const auto& value : values) {
    if (!value.empty() && value.size() == values.front().size()) continue;
    return bad_input("averaging: values of " + std::to_string(values.front().size()) + " and " +
                     std::to_string(value.size()) +
                     " coordinates: give every rank the same number, at least 1");
  }
  return {};
}

}  // namespace

Expected<AveragingMethod> parse_averaging_method(const std::string& name) {
  for (const MethodName& entry : kMethods) {
    if (name == entry.name) return entry.method;
  }
  return unknown_name("averaging method", name, averaging_method_names());
}

std::vector<std::string> averaging_method_names() {
  std::vector<std::string> names;
  for (const MethodName& entry : kMethods) names.emplace_back(entry.name);
  return names;
}

void Mass::add(const Mass& other, double factor) {
  if (x.size() < other.x.size()) x.resize(other.x.size(), 0.0);
  for (std::size_t c = 0; c < other.x.size(); ++c) x[c] += factor * other.x[c];
  w += factor * other.w;
}

void Mass::scale(double factor) {
  for (double& value : x) value *= factor;
  w *= factor;
}

Averager::Averager(std::shared_ptr<const Topology> topology, Rank rank, std::vector<double> value)
    : topology_(std::move(topology)), rank_(rank), held_{std::move(value), 1.0} {
  GRAPEVINE_CHECK(rank >= 0 && rank < topology_->ranks(), "rank ", rank);
}

std::vector<double> Averager::estimate() const {
  std::vector<double> z = held_.x;
  for (double& value : z) value /= held_.w;
  return z;
}

std::unique_ptr<Averager> make_averager(AveragingMethod method, bool running_sums,
                                        std::shared_ptr<const Topology> topology, Rank rank,
                                        std::vector<double> value) {
  switch (method) {
    case AveragingMethod::push_sum:
      if (running_sums) {
        return std::make_unique<RunningPushSumAverager>(std::move(topology), rank,
                                                        std::move(value));
      }
      return std::make_unique<PushSumAverager>(std::move(topology), rank, std::move(value));
    case AveragingMethod::symmetric:
      return std::make_unique<SymmetricAverager>(std::move(topology), rank, std::move(value));
    case AveragingMethod::bilateral:
      return std::make_unique<BilateralAverager>(std::move(topology), rank, std::move(value));
  }
  GRAPEVINE_CHECK(false, "averaging method ", static_cast<int>(method));
  return nullptr;
}

AveragingRun::AveragingRun(std::vector<double> true_mean, double drop, std::uint64_t seed)
    : true_mean_(std::move(true_mean)), drop_(drop), rng_(mix_seed(seed, 0)) {}

Expected<AveragingRun> AveragingRun::start(std::shared_ptr<const Topology> topology,
                                           const std::vector<std::vector<double>>& values,
                                           const AveragingOptions& options) {
  const Expected<void> checked = check_arguments(*topology, values, options);
  if (!checked) return checked.error();
  Mass sum;
  for (const auto& value : values) sum.add({value, 1.0}, 1);
  sum.scale(1.0 / static_cast<double>(values.size()));
  AveragingRun run(std::move(sum.x), options.drop, options.seed);
  for (std::size_t i = 0; i < values.size(); ++i) {
    run.ranks_.push_back(make_averager(options.method, options.running_sums, topology,
                                       static_cast<Rank>(i), values[i]));
  }
  return run;
}

void AveragingRun::advance() {
  const bool concurrent = ranks_.front()->concurrent();
  Averager::Messages begun;
  for (auto& rank : ranks_) {
    for (AveragingMessage& message : rank->begin_round(round_)) begun.push_back(std::move(message));
    if (!concurrent) deliver(std::exchange(begun, {}));
  }
  deliver(std::move(begun));
  ++round_;
}

void AveragingRun::deliver(Averager::Messages messages) {
  // Replies join the end of the queue, so indices are used while it grows.
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const AveragingMessage message = std::move(messages[i]);
    if (lost()) continue;
    Averager& receiver = *ranks_[static_cast<std::size_t>(message.to)];
    for (AveragingMessage& answer : receiver.on_message(message)) {
      messages.push_back(std::move(answer));
    }
  }
}

bool AveragingRun::lost() {
  // 53 random bits, so that the same seed drops the same messages with every standard library.
  const double uniform = std::ldexp(static_cast<double>(rng_() >> 11), -53);
  return uniform < drop_;
}

AveragingReport AveragingRun::report() const {
  AveragingReport report;
  report.round = round_;
  for (const auto& rank : ranks_) {
    const std::vector<double> z = rank->estimate();
    report.mean += z.front() / static_cast<double>(ranks_.size());
    for (std::size_t c = 0; c < z.size(); ++c) {
      const double deviation = std::abs(z[c] - true_mean_[c]);
      // A NaN is never replaced.
      if (deviation > report.max_deviation || std::isnan(deviation)) {
        report.max_deviation = deviation;
      }
    }
  }
  report.weight_sum = total().w;
  return report;
}

Mass AveragingRun::total() const {
  Mass total;
  for (const auto& rank : ranks_) total.add(rank->ledger(), 1);
  return total;
}

}  // namespace grapevine
