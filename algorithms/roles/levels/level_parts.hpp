// The settings of a plan with levels, and what its ranks share.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/wiring/role_type.hpp"
#include "messages/protocol.hpp"

namespace grapevine {

inline constexpr std::int64_t kLevelTags = 16;

// Of what a level sends within its group: levels inside have other tags, and their roles number
// their operations from 0.
struct LevelTag {
  std::int64_t depth = 0;  // levels inside, below kLevelTags

  std::int64_t of(std::int64_t period) const { return period * kLevelTags + depth; }
  // Of the mean of a period.
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

// Ranks that follow each other, the first of them their head.
struct LevelGroup {
  Rank head = 0;
  std::int32_t size = 0;
  std::shared_ptr<const SharedParts> inside;
};

// What the levels of a plan share.
struct LevelParts final : RoleData {
  std::vector<LevelGroup> groups;              // ascending
  std::shared_ptr<const SharedParts> outside;  // its steps are periods

  LevelParts(std::vector<LevelGroup> of_ranks, std::shared_ptr<const SharedParts> of_heads)
      : groups(std::move(of_ranks)), outside(std::move(of_heads)) {}

  // REQUIRES: `rank` is in one of them.
  const LevelGroup& group_of(Rank rank) const;
  std::vector<Rank> heads() const;
  // Ranks of a group, on average.
  double mean_size() const;
  // After an exchange, bit for bit, and count the exchanges that are complete.
  bool heads_agree() const;
};

}  // namespace grapevine
