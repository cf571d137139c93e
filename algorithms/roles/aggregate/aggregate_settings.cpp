// The keys of the aggregate role, and its entry in the list of roles.
#include <memory>
#include <utility>

#include "algorithms/compressors/compressor.hpp"
#include "algorithms/roles/aggregate/aggregate.hpp"

namespace grapevine {
namespace {

// Whole: buckets cost messages, and pay where links are slow (docs/performance.md).
constexpr std::int64_t kBucketBytes = 0;

// The only place that decides which gradients may leave in parts: those of which nothing is to be
// known before they are summed. Compression selects among all entries, a local norm is one of all,
// and with overlap the sum has the whole next pass for itself.
std::int64_t read_bucket_bytes(KeyReader& keys, const LocalUpdateSettings& local) {
  std::int64_t bytes = 0;
  keys.where("pack", "gradient", [&] {
    keys.where("overlap", "false", [&] {
      keys.where("compress", "none", [&] {
        bytes = keys.whole("bucket_bytes", kBucketBytes, 0,
                           "size of the parts in which a gradient is summed while the backward "
                           "pass computes those before them; 0: whole, after it");
      });
    });
  });
  const bool whole = local.clip.norm > 0 && local.clip.at == ClipSettings::At::own_part;
  keys.only_where(
      "bucket_bytes", !whole || bytes == 0,
      "clip_at = 'local': the norm of a rank's own gradient is known at its end, choose "
      "clip_at = 'sum'");
  return whole ? 0 : bytes;
}

void read_aggregate(KeyReader& keys, Plan& plan) {
  auto settings = std::make_shared<AggregateSettings>();
  LocalUpdateSettings& local = plan.local;
  local.pack = read_pack(keys, {Pack::gradient, Pack::model, Pack::difference}, "");
  for (const char* pack : {"model", "difference"})
    keys.where("pack", pack, [&] { local.steps = read_local_steps(keys); });
  keys.where("pack", "difference", [&] { read_outer(keys, local); });
  settings->overlap = keys.flag("overlap", false, "exchange while the worker computes");
  CompressionUse use;
  use.sums = use.momentum = true;
  plan.compression = read_compression(keys, use);
  keys.only_where("compress", !is_sparse(plan.compression) || local.pack != Pack::model,
                  "pack = 'model': what is not sent would become 0 in the model, choose pack = "
                  "'difference'");
  keys.only_where("compress", keeps_magnitudes(plan.compression) || local.pack != Pack::model,
                  "pack = 'model': gradients would be computed at models of less than 8 bits a "
                  "number, choose pack = 'difference'");
  keys.where("pack", "gradient", [&] { local.clip = read_clip(keys, true); });
  for (const char* pack : {"model", "difference"})
    keys.where("pack", pack, [&] { local.clip = read_clip(keys, false); });
  settings->bucket_bytes = read_bucket_bytes(keys, local);
  plan.settings = std::move(settings);
}

}  // namespace

const RoleType& aggregate_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "aggregate";
    role.any_device = [](const Plan&) { return true; };
    role.summary = "all ranks take the mean of their gradients, models or differences";
    role.read = &read_aggregate;
    role.make = &make_from_context<Aggregate>;
    // The last operation is used at once, and not at the exchange after it.
    role.announces_end = [](const Plan& plan) {
      return data_as<AggregateSettings>(plan.settings).overlap;
    };
    role.changes_members = [](const Plan&) { return true; };
    role.replicates = true;
    role.synchronous = role.ranks_agree = [](const Plan& plan) {
      return !data_as<AggregateSettings>(plan.settings).overlap;
    };
    role.gradient_sums = [](const Plan& plan) {
      const bool at_once = !data_as<AggregateSettings>(plan.settings).overlap;
      return at_once && plan.local.pack == Pack::gradient ? GradientSums::means
                                                          : GradientSums::unknown;
    };
    role.most_staleness = [](const Plan& plan) {
      return data_as<AggregateSettings>(plan.settings).overlap ? 1 : 0;
    };
    role.compresses_gradients = [](const Plan& plan) { return plan.local.pack == Pack::gradient; };
    return role;
  }();
  return type;
}

}  // namespace grapevine
