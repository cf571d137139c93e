// The keys of the gossip role, and its entry in the list of roles.
#include <memory>
#include <utility>

#include "algorithms/roles/gossip/gossip.hpp"
#include "algorithms/wiring/make_parts.hpp"

namespace grapevine {
namespace {

void check_running_sums(KeyReader& keys, const GossipSettings& gossip, const Plan& plan) {
  if (!gossip.running_sums) return;
  keys.only_where("running_sums", gossip.averaging == MixingRule::push_sum,
                  "averaging = '" + keys.value_of("averaging") +
                      "': shares that come late leave ranks with weights other than 1, which "
                      "push-sum alone allows, choose averaging = 'push-sum'");
  keys.only_where("running_sums", gossip.overlap,
                  "overlap = false: a step that waits for its round waits for ever for a message "
                  "that is lost, choose overlap = true");
  keys.only_where("running_sums", !plan.compression.enabled(),
                  "compress = '" + plan.compression.name +
                      "': a difference that is lost leaves the two replicas of its edge apart, "
                      "choose compress = 'none'");
  keys.only_where("running_sums", plan.local.quasi_global == 0,
                  "quasi_global = '" + keys.value_of("quasi_global") +
                      "': the model of a light rank jumps when late shares come, and this momentum "
                      "repeats the jump 1/w times as far, choose quasi_global = 0");
}

void check_gossip(KeyReader& keys, const GossipSettings& gossip, const Plan& plan) {
  keys.only_where("staleness", gossip.overlap || gossip.staleness.most() == 0,
                  "overlap = false: a round that is waited for at once cannot be skipped, choose "
                  "overlap = true");
  keys.only_where("update", !gossip.overlap || gossip.update == Update::before_exchange,
                  "overlap = true: what arrives during a step is folded in after it, choose "
                  "update = 'before'");
  keys.only_where("averaging",
                  gossip.averaging != MixingRule::biased || gossip.staleness.most() == 0,
                  "staleness > 0: a rank that skipped a round has not halved its model for it, and "
                  "without a weight no receiver can tell, choose averaging = 'push-sum'");
  keys.only_where("averaging",
                  gossip.averaging != MixingRule::biased || !plan.compression.enabled(),
                  "compress = '" + plan.compression.name +
                      "': what a rank gives is a part of its replica, not of its model: without a "
                      "weight nothing divides it out where a round is not whole, choose averaging "
                      "= 'push-sum'");
}

void read_gossip(KeyReader& keys, Plan& plan) {
  auto gossip = std::make_shared<GossipSettings>();
  read_mixed(keys, plan.local, "exchange = 'gossip': gossip mixes models");
  plan.graph = read_graph(keys);
  gossip->averaging = keys.choice<MixingRule>(
      "averaging", "push-sum",
      {{"push-sum", MixingRule::push_sum},
       {"symmetric", MixingRule::symmetric},
       {"biased", MixingRule::biased}},
      "the weights with which gossip mixes models; biased ignores push-sum's weight");
  gossip->update = keys.choice<Update>(
      "update", "before", {{"before", Update::before_exchange}, {"after", Update::after_exchange}},
      "whether the optimizer steps before or after the exchange");
  gossip->overlap = keys.flag("overlap", false, "exchange while the worker computes");
  gossip->staleness =
      read_counts(keys, "staleness", "0", 0,
                  "tau, by epoch: exchanges running in which an outstanding round may be skipped "
                  "before it is waited for, or with running sums folded as it is");
  gossip->running_sums =
      keys.flag("running_sums", false,
                "each message carries all that was ever given on its edge, so that a lost one "
                "loses nothing");
  gossip->tracking =
      keys.flag("tracking", false,
                "steps follow an estimate of the mean gradient, which is mixed beside the model");
  plan.local.steps = read_local_steps(keys);
  read_quasi_global(keys, plan.local);
  plan.local.clip = read_clip(keys, false);
  CompressionUse use;
  use.mixes = true;
  plan.compression = read_compression(keys, use);
  check_running_sums(keys, *gossip, plan);
  check_gossip(keys, *gossip, plan);
  plan.settings = std::move(gossip);
}

// What is split among destinations mixes only where every rank reaches every other.
Expected<void> prepare_gossip(SharedParts& parts, std::int32_t ranks) {
  if (auto made = make_graph(parts, ranks); !made) return made;
  const auto& settings = data_as<GossipSettings>(parts.plan.settings);
  return settings.averaging != MixingRule::symmetric ? parts.graph->check_strongly_connected()
                                                     : Expected<void>{};
}

// Estimates of tracking, and models that are mixed without their weights, do not keep the sum.
GradientSums sums_of_gossip(const Plan& plan) {
  const auto& settings = data_as<GossipSettings>(plan.settings);
  const bool keeps_sum = settings.averaging != MixingRule::biased && !settings.tracking;
  return keeps_sum && !settings.running_sums ? GradientSums::sums : GradientSums::unknown;
}

// Beside a compressed difference the whole weight of its sender travels, of which nothing is given.
// A biased average leaves each rank the weight 1 that it gives away.
SentWeight weight_of_gossip(const Plan& plan) {
  const auto& settings = data_as<GossipSettings>(plan.settings);
  if (settings.running_sums) return SentWeight::sums;
  const bool gives = settings.averaging != MixingRule::biased && !plan.compression.enabled();
  return gives ? SentWeight::shares : SentWeight::none;
}

std::int64_t staleness_of_gossip(const Plan& plan) {
  const auto& settings = data_as<GossipSettings>(plan.settings);
  if (!settings.exchanges_first()) return 0;
  return settings.overlap && !settings.rounds_differ() ? 1 : -1;
}

}  // namespace

const RoleType& gossip_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "gossip";
    role.any_device = [](const Plan&) { return true; };
    role.summary = "every rank mixes its model with those of a few peers in each round";
    role.read = &read_gossip;
    role.prepare = &prepare_gossip;
    role.make = &make_from_context<Gossip>;
    role.tolerates_lost_peer = true;
    role.changes_members = [](const Plan&) { return true; };
    role.keeps_mass = [](const Plan& plan) {
      return data_as<GossipSettings>(plan.settings).averaging == MixingRule::push_sum;
    };
    role.announces_end = [](const Plan& plan) {
      return data_as<GossipSettings>(plan.settings).rounds_differ();
    };
    role.synchronous = [](const Plan& plan) {
      return !data_as<GossipSettings>(plan.settings).exchanges_first();
    };
    role.gradient_sums = &sums_of_gossip;
    role.sent_weight = &weight_of_gossip;
    role.most_staleness = &staleness_of_gossip;
    return role;
  }();
  return type;
}

}  // namespace grapevine
