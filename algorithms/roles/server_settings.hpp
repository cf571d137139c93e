// The settings of parameter servers and their clients.
#pragma once
#include <cstdint>

#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

// What a client commits, and what the server makes of it (server_rules.hpp).
enum class ServerRule { gem, downpour, adaptive, agn, easgd };

struct ServerSettings final : RoleData {
  ServerRule rule = ServerRule::gem;
  double kappa = 1;             // gem: how much of the proxy's energy theta may have
  bool strict = true;           // gem: one client at a time between pull and commit
  double section_timeout = 10;  // gem: seconds after which a grant is taken back
  double elasticity = 0.9;      // easgd: beta = workers * alpha
  bool synchronous = false;     // easgd: all clients of a round move against the same centre
};

const RoleType& server_role();

}  // namespace grapevine
