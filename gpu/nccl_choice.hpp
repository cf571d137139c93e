// Whether a group of ranks exchanges by NCCL or through host memory. Pure; needs no CUDA.
#pragma once
#include <string>
#include <vector>

namespace grapevine {

// Where a rank computes.
struct RankPlace {
  std::string host;    // the same name for the same machine
  std::string device;  // the card's UUID; empty: the CPU
};

struct NcclChoice {
  bool nccl = false;
  std::string why;  // one line for the log: what was chosen and what decided it
};

// `places`: of the group's ranks, by their order in it. NCCL takes one rank per card, and here one
// machine per group: between machines the transport carries what is exchanged. `built_in`: whether
// this build has NCCL.
NcclChoice choose_nccl(const std::vector<RankPlace>& places, bool built_in);

}  // namespace grapevine
