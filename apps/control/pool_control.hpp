// Where the job that a pool of nodes runs now is controlled.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "messages/expected.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine {

struct PoolJobControl {
  std::int64_t job = 0;
  int port = 0;        // of its --control, at the host of the pool's first node
  std::string secret;  // of the job
};

// Asks the first node at that address, which proves that it knows the secret of the nodes, and is
// shown the same. Blocks for some seconds at most. `tls`: null: without TLS. Errors: bad_input (the
// nodes run no job; the secret is another), failed (the job is starting), timeout, peer_down or
// protocol (no pool answers there).
Expected<PoolJobControl> find_pool_job(const std::string& host, std::uint16_t port,
                                       const std::string& secret,
                                       const std::shared_ptr<const tcp::TlsContext>& tls);

}  // namespace grapevine
