// The common setup of `node` and `train --cluster`: addresses, the secret, messages.
#pragma once
#include <string>

#include <caf/actor_system_config.hpp>

#include "messages/expected.hpp"
#include "messages/time.hpp"
#include "net/addresses.hpp"

namespace grapevine {

inline constexpr char kClusterSecretVariable[] = "GRAPEVINE_CLUSTER_SECRET";

std::string text_of(const ListenAddress& address);

// 0.0.0.0, ::: all interfaces.
bool is_any_host(const std::string& host);

// The content of `path` without the white space at its end; where `path` is empty, that of the
// variable GRAPEVINE_CLUSTER_SECRET; else nothing. Errors (bad_input): an unreadable file, one that
// is empty or holds more than a line.
Expected<std::string> read_secret(const std::string& path);

// Why a process does not reach the first node of a pool.
Error no_first_node(const ListenAddress& first, const Error& why);

// Messages and heartbeats. A peer that is silent for `silence` counts as lost. REQUIRES: at least
// kLeastNodeSilence. Call it before the system is made.
void configure_for_nodes(caf::actor_system_config& config, Duration silence);
inline constexpr Duration kLeastNodeSilence = std::chrono::seconds(2);

}  // namespace grapevine
