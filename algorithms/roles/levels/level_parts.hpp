// The settings of a plan with levels, and what its ranks share.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>

#include "algorithms/wiring/role_type.hpp"
#include "messages/protocol.hpp"

namespace grapevine {

inline constexpr std::int64_t kLevelTags = 16;

// Of what a level sends within its group: levels inside have other tags, and their roles number
// their operations from 0.
struct LevelTag {
  std::int64_t depth = 0;  // levels inside, below kLevelTags

  std::int64_t of(std::int64_t period) const { return period * kLevelTags + depth; }
  // Of the ring of a period.
  std::int64_t operation(std::int64_t period) const { return -1 - of(period); }

  bool is_on(const Parameters& parameters) const { return parameters.step % kLevelTags == depth; }
  bool is_on(const Payload& payload) const {
    if (const auto* chunk = std::get_if<Chunk>(&payload))
      return chunk->operation < 0 && (-1 - chunk->operation) % kLevelTags == depth;
    const auto* parameters = std::get_if<Parameters>(&payload);
    return parameters != nullptr && is_on(*parameters);
  }
};

struct LevelSettings final : RoleData {
  Plan inside;
  Plan outside;
  std::int64_t depth = 0;  // levels inside
};

// What the levels of a plan share.
struct LevelParts final : RoleData {
  std::shared_ptr<const SharedParts> inside;
  std::shared_ptr<const SharedParts> outside;  // its steps are periods

  LevelParts(std::shared_ptr<const SharedParts> of_inside,
             std::shared_ptr<const SharedParts> of_outside)
      : inside(std::move(of_inside)), outside(std::move(of_outside)) {}
};

}  // namespace grapevine
