// LocalUpdateSettings: what a rank makes of its gradients between two exchanges, and what it packs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/keys.hpp"

namespace grapevine {

// What ranks exchange.
enum class Pack { gradient, model, difference };

const char* pack_name(Pack pack);

// Gradient clipping by the L2 norm, for aggregates.
struct ClipSettings {
  double norm = 0;     // c; 0: none
  bool at_sum = true;  // the mean of all ranks to c; else each rank's own to c / sqrt(P)
};

struct LocalUpdateSettings {
  Pack pack = Pack::gradient;
  std::int64_t local_steps = 1;  // H: steps of each rank from one exchange to the next
  bool outer = false;            // of differences: Nesterov's momentum on their mean
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  ClipSettings clip;
};

// `packs`: what the role can exchange, the usual one first; `why`: completes "does not fit …".
Pack read_pack(KeyReader& keys, const std::vector<Pack>& packs, const std::string& why);
std::int64_t read_local_steps(KeyReader& keys);
// The optimizer that steps along mean differences.
void read_outer(KeyReader& keys, LocalUpdateSettings& local);
ClipSettings read_clip(KeyReader& keys);

}  // namespace grapevine
