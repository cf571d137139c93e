// TopFrame: what the verb `top` shows on its screen.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apps/control/status_view.hpp"

namespace grapevine {

struct TopState {
  std::optional<StatusView> view;  // the newest one; none: none has come yet
  std::string problem;             // why no newer one comes; empty: nothing is wrong
  RowOrder order = RowOrder::rank;
  bool paused = false;
  bool shows_waits = false;  // the stall report and the events in the place of the ranks
};

struct FrameLine {
  enum class Style { plain, title, heading, alarm };
  std::string text;
  Style style = Style::plain;
};

// Exactly `rows` lines, none wider than `columns`.
std::vector<FrameLine> top_frame(const TopState& state, int rows, int columns);

// Whether the key has a meaning; false for q as well, which ends the verb.
bool press(TopState& state, int key);

}  // namespace grapevine
