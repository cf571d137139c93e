// The settings of parameter servers and their clients.
#pragma once
#include <cstdint>

#include "algorithms/roles/server/server_rule.hpp"

namespace grapevine {

struct ServerSettings final : RoleData {
  const ServerRule* rule = nullptr;
  double kappa = 1;      // gem: how much of the proxy's energy theta may have
  bool overlap = false;  // rules that offer: compute while an offer is on its way
  bool strict = true;    // rules that take turns: one client at a time between pull and commit
  double section_timeout = 10;   // the same: seconds after which a grant is taken back
  double elasticity = 0.9;       // easgd: beta = workers * alpha
  bool synchronous = false;      // all clients of a round move against the same centre
  std::int64_t outer_every = 0;  // delayed-nesterov: N, commits of a momentum step; 0: the clients
};

inline const ServerSettings& server_settings(const SharedParts& parts) {
  return data_as<ServerSettings>(parts.plan.settings);
}

const RoleType& server_role();

}  // namespace grapevine
