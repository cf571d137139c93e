// Running sums: push-sum whose messages may be lost.
//
// Papers: Hadjicostis, Vaidya, Dominguez-Garcia: "Robust Distributed Average Consensus via Exchange
//   of Running Sums", IEEE Transactions on Automatic Control 61(6), 2016. With gradients, and
//   ranks that never wait: Spiridonoff, Olshevsky, Paschalidis: "Robust Asynchronous Stochastic
//   Gradient-Push", JMLR 21, 2020.
// Symbols: (s, v)_ij the sum of all shares of (x, w) that rank i ever gave to rank j; (r, u)_ij the
//   newest of these sums that rank j has folded.
//
//   give   (x, w)_ij = W_k[j][i] (x, w) to each j;  (s, v)_ij += (x, w)_ij;  send (s, v)_ij to j
//   fold   x_j <- x_j + (s - r)_ij;  w_j <- w_j + (v - u)_ij;  (r, u)_ij <- (s, v)_ij
//
// A lost message delays its share: the next one on the edge that arrives contains it. So does one
//   that overtakes another; the older one then counts for nothing, and neither does a second copy.
// Conservation: sum of x and of w over ranks, and of (s - r, v - u) over edges. The final flush of
//   a rank repeats its newest sums; where these arrive, all mass is in the models.
// Precision: x and shares are float32, both sums float64, at both ends and in the message, so that
//   both ends subtract the same numbers. As long as shares on an edge differ by less than a factor
//   of 2^29 / k, the sums of k of them are exact, and so are their differences: where nothing is
//   lost, x has the bits of plain shares. Beyond it, a round misplaces at most k 2^-53 of a share.
//   In float32 it would be k 2^-24: after 10^4 rounds a thousandth of every share.
// Bytes per rank and round: links * (8 d + header), twice those of shares.
// Memory: 16 d bytes for each destination, and as many for each source, over all rounds: a sum, and
//   the next one while a message with it is on its way or not folded yet.
// Deviations: the paper's rank broadcasts one sum, as its graph and weights never change; here each
//   edge has its own, so that graphs may change and ranks may die. The papers bound how long a rank
//   hears of no other; here nothing does, so that a rank of weight below 1/8 gives no share (it
//   repeats its sums). Any column-stochastic matrices conserve the mass; without this one w halves
//   in every round in which nothing arrives, and a gradient moves z = x/w by gamma/w.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "algorithms/parts/stored_envelope.hpp"
#include "algorithms/roles/gossip/running_sum.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

// Entries of the saved state: lists of ranks, each with its sum under "<list>.<rank>.".
constexpr char kGiven[] = "sums_given";
constexpr char kFolded[] = "sums_folded";

class SumsMixer final : public Mixer {
 public:
  SumsMixer(std::shared_ptr<const SharedParts> parts, Rank rank, ModelState& model,
            BufferPool& pool)
      : rank_(rank),
        model_(model),
        pool_(pool),
        split_(std::move(parts), MixingRule::push_sum, rank, model, pool) {}

  std::vector<Rank> sources(std::int64_t round) const override { return split_.sources(round); }

  void push(const Round& round, bool whole) override {
    if (model_.w >= kLeastWeight)
      for (const ShareSplit::Gift& gift : split_.give(round, whole)) given_[gift.to].add(gift);
    for (const Shares::Link& link : split_.shares_of(round).links) send_sum(round, link.peer);
  }

  // To peers that have ended, too: they still fold.
  void flush(const Round& round) override {
    const Membership& members = round.env.membership();
    for (Rank peer = 0; peer < members.world_size(); ++peer)
      if (peer != rank_ && members.is_alive(peer)) send_sum(round, peer);
  }

  void fold(Env& env, std::int64_t) override {
    split_.take_given();
    for (const auto& [from, envelope] : arrived_) add(env, from, envelope);
    arrived_.clear();
  }

  void take(Envelope envelope) override {
    const Rank from = envelope.from;
    const auto* sum = std::get_if<Share>(&envelope.payload);
    GRAPEVINE_CHECK(sum != nullptr && RunningSum::fits(sum->x, model_.x), "rank ", from,
                    " sent gossip a message that is not a running sum of this model's shares");
    GRAPEVINE_CHECK(sum->round >= 0 && std::isfinite(sum->w) && sum->w > 0, "rank ", from,
                    " sent a running sum of weight ", sum->w, " for round ", sum->round);
    if (has(sum->round, from)) return;  // overtaken, or a copy
    arrived_.insert_or_assign(from, std::move(envelope));
  }

  // A sum contains all shares of the rounds before.
  bool has(std::int64_t round, Rank peer) const override {
    if (const auto it = arrived_.find(peer); it != arrived_.end())
      return round <= std::get<Share>(it->second.payload).round;
    return has_folded(round, peer);
  }

  void fields(Archive& a) override {
    split_.fields(a);
    a.keyed(kGiven, std::string(kGiven) + ".", given_,
            [this](Archive& inner, RunningSum& sum) { sum.fields(inner, model_.x); });
    a.keyed(kFolded, std::string(kFolded) + ".", folded_, [this](Archive& inner, Folded& folded) {
      folded.sum.fields(inner, model_.x);
      inner.whole("round", folded.round, 0, std::numeric_limits<std::int64_t>::max());
    });
    a.entries("arrived", arrived_, "has two running sums of one rank",
              [this](Archive& inner, Rank& from, Envelope& envelope) {
                share_fields(inner, envelope, rank_);
                from = envelope.from;
                const Share& sum = std::get<Share>(envelope.payload);
                inner.require(
                    RunningSum::fits(sum.x, model_.x) && sum.w > 0 && !has_folded(sum.round, from),
                    "arrived", "has a running sum that is of another model, or is folded already");
              });
  }

 private:
  struct Folded {
    RunningSum sum;
    std::int64_t round = 0;  // of the message that carried it
  };

  bool has_folded(std::int64_t round, Rank peer) const {
    const auto it = folded_.find(peer);
    return it != folded_.end() && round <= it->second.round;
  }

  // Nothing to a peer that was never given a share.
  void send_sum(const Round& round, Rank peer) {
    const auto it = given_.find(peer);
    if (it == given_.end()) return;
    const RunningSum& sum = it->second;
    round.env.send(peer, round.stamp, Share{round.number, sum.w, sum.x});
  }

  // In float64, rounded once.
  void add(Env& env, Rank from, const Envelope& envelope) {
    const Share& share = std::get<Share>(envelope.payload);
    RunningSum& folded = folded_[from].sum;
    const at::Tensor more =
        folded.x.defined() ? at::sub(share.x.read(), folded.x.read()) : share.x.read();
    update_frozen(model_.x, pool_,
                  [&more](at::Tensor& out, const at::Tensor& x) { at::add_out(out, x, more); });
    model_.w += share.w - folded.w;
    folded_[from] = {{share.x, share.w}, share.round};
    record_applied(env, from, envelope.stamp, model_, share.x.nbytes());
  }

  const Rank rank_;
  ModelState& model_;
  BufferPool& pool_;

  ShareSplit split_;
  std::map<Rank, RunningSum> given_;  // by destination
  std::map<Rank, Folded> folded_;     // by source: the newest that is in the model
  std::map<Rank, Envelope> arrived_;  // by source: the newest that is not
};

}  // namespace

std::unique_ptr<Mixer> make_sums_mixer(std::shared_ptr<const SharedParts> parts, MixingRule rule,
                                       Rank rank, ModelState& model, BufferPool& pool) {
  GRAPEVINE_CHECK(rule == MixingRule::push_sum, "running sums are of push-sum's shares");
  return std::make_unique<SumsMixer>(std::move(parts), rank, model, pool);
}

OwedMass owed_mass(const StateDict& role) {
  OwedMass owed;
  for (const auto& [list, sign] : {std::pair{kGiven, 1.0}, std::pair{kFolded, -1.0}}) {
    const auto peers = role.list(list);
    if (!peers) return owed;
    for (const std::int64_t peer : *peers) {
      const StateDict sum = role.under(std::string(list) + "." + std::to_string(peer));
      const at::Tensor x = *sum.tensor("x") * sign;
      owed.x = owed.x.defined() ? owed.x + x : x;
      owed.w += sign * *sum.number("w");
    }
  }
  return owed;
}

}  // namespace grapevine
