#include "messages/text/names.hpp"

#include "messages/text/control_characters.hpp"
#include "messages/text/nearest_name.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kLongList = 30;  // names that hide the suggestion before them

}  // namespace

Error unknown_name(const std::string& what, const std::string& name,
                   const std::vector<std::string>& valid) {
  std::string message = "unknown " + what + " '" + without_control_characters(name) + "'";
  const auto nearest = nearest_name(name, valid);
  if (nearest) message += ": did you mean '" + *nearest + "'?";
  if (nearest && valid.size() > kLongList) return bad_input(message);
  message += nearest ? " valid: " : ": valid: ";
  for (std::size_t i = 0; i < valid.size(); ++i) message += (i > 0 ? ", " : "") + valid[i];
  return bad_input(message);
}

}  // namespace grapevine
