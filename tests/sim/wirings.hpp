// Plans from wiring keys, as tests write them down.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/roles/server/server_settings.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "algorithms/wiring/wiring.hpp"

namespace grapevine::sim {

using Keys = std::vector<std::pair<std::string, std::string>>;

// Later keys override earlier ones. A wiring that does not resolve fails the test.
inline Plan plan_of(const Keys& keys) {
  Wiring wiring;
  for (const auto& [key, value] : keys) {
    const auto set = wiring.set(key, value);
    EXPECT_TRUE(set.ok()) << set.error().message;
  }
  auto plan = resolve(wiring);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return plan.ok() ? *plan : Plan();
}

// What resolve() or Wiring::set() says of them; "accepted" where they fit.
inline std::string refusal_of(const Keys& keys) {
  Wiring wiring;
  for (const auto& [key, value] : keys)
    if (auto set = wiring.set(key, value); !set) return set.error().message;
  const auto plan = resolve(wiring);
  return plan.ok() ? "accepted" : plan.error().message;
}

// Those of a preset.
inline Keys keys_of(const std::string& preset) {
  const auto found = find_preset(preset);
  EXPECT_TRUE(found.ok()) << preset;
  return {found->wiring.keys().begin(), found->wiring.keys().end()};
}

inline Keys operator+(Keys keys, const Keys& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

// Whether that many ranks accept the plan's peers per round.
inline bool has_peers(const Plan& plan, std::int32_t ranks) {
  const std::vector<std::int64_t> peers = plan.graph.peers.values();
  return peers.empty() || *std::max_element(peers.begin(), peers.end()) <= std::max(2, ranks - 1);
}

inline bool is_role(const Plan& plan, const std::string& name) { return plan.role->name == name; }

// Shorter than a key may say: in RoleWorld a nanosecond is an event.
inline void set_section_timeout(Plan& plan, double seconds) {
  auto settings = std::make_shared<ServerSettings>(data_as<ServerSettings>(plan.settings));
  settings->section_timeout = seconds;
  plan.settings = std::move(settings);
}

}  // namespace grapevine::sim
