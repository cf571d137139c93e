#include "algorithms/parts/local_update.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace grapevine {

const char* pack_name(Pack pack) {
  return pack == Pack::gradient ? "gradient" : pack == Pack::model ? "model" : "difference";
}

Pack read_pack(KeyReader& keys, const std::vector<Pack>& packs, const std::string& why) {
  std::vector<std::pair<std::string, Pack>> values;
  for (const Pack pack : {Pack::gradient, Pack::model, Pack::difference})
    values.emplace_back(pack_name(pack), pack);
  const Pack pack =
      keys.choice("pack", pack_name(packs.front()), values, "the content of an exchange");
  keys.only_where("pack", std::find(packs.begin(), packs.end(), pack) != packs.end(),
                  why + ", choose pack = '" + pack_name(packs.front()) + "'");
  return pack;
}

std::int64_t read_local_steps(KeyReader& keys) {
  return keys.whole("local_steps", 1, 1, "H: steps of each rank from one exchange to the next");
}

void read_outer(KeyReader& keys, LocalUpdateSettings& local) {
  local.outer = keys.choice<bool>("outer", "none", {{"none", false}, {"nesterov", true}},
                                  "the optimizer that steps along the mean difference");
  keys.where("outer", "nesterov", [&] {
    local.outer_lr = keys.number("outer_lr", local.outer_lr, {}, "its rate");
    // With 1 the sum of past steps would never fade.
    local.outer_momentum =
        keys.number("outer_momentum", local.outer_momentum, {0, 1, false, true}, "its momentum");
  });
}

ClipSettings read_clip(KeyReader& keys) {
  ClipSettings clip;
  const double most = std::numeric_limits<double>::max();
  clip.norm = keys.number("clip", 0, {0, most, true}, "the largest L2 norm of the gradient");
  keys.only_where("clip_at", keys.has("clip"), "a wiring without clip: give clip a norm");
  if (keys.lists() || keys.has("clip"))
    clip.at_sum = keys.choice<bool>("clip_at", "sum", {{"sum", true}, {"local", false}},
                                    "clip the mean of all ranks, or each rank's own to "
                                    "1/sqrt(ranks) of the norm");
  return clip;
}

}  // namespace grapevine
