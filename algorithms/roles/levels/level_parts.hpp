// The settings of a plan with levels, and what its ranks share.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>

#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

// Messages of a level within its group have a tag: its depth modulo this.
inline constexpr std::int64_t kLevelTags = 16;

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
