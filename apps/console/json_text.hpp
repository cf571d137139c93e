// JSON as verbs print it.
#pragma once
#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

namespace grapevine {

// On one line, or with `indent` spaces for each level. Bytes that are no UTF-8 are replaced: paths
// and the text of other processes may hold any.
inline std::string json_text(const nlohmann::ordered_json& value, int indent = -1) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// JSON has no NaN and no infinity: null.
inline nlohmann::ordered_json json_number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

}  // namespace grapevine
