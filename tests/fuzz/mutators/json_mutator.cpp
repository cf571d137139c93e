#include <cstddef>
#include <cstdint>
#include <limits>

#include "tests/fuzz/mutators/mutators.hpp"

namespace grapevine::fuzzing {
namespace {

using nlohmann::json;

const std::vector<json>& any_values() {
  static const std::vector<json> values = {0,
                                           1,
                                           -1,
                                           2,
                                           3,
                                           7,
                                           1'000'000,
                                           std::int64_t{1} << 31,
                                           std::int64_t{1} << 32,
                                           std::numeric_limits<std::int64_t>::max(),
                                           std::numeric_limits<std::int64_t>::min(),
                                           std::numeric_limits<std::uint64_t>::max(),
                                           0.0,
                                           0.5,
                                           -0.5,
                                           1e300,
                                           true,
                                           nullptr,
                                           "",
                                           "1",
                                           "a\nb",
                                           "a\x1b[31m",
                                           json::array(),
                                           json::array({0, 1}),
                                           json::array({1, 0}),
                                           json::object()};
  return values;
}

// Every value of the document, from the outermost.
void collect(json& value, std::vector<json*>& values) {
  values.push_back(&value);
  if (value.is_structured())
    for (json& inner : value) collect(inner, values);
}

// A random member of the format.
json::const_iterator any_member(const json& members, Rng& rng) {
  auto at = members.begin();
  std::advance(at, static_cast<std::ptrdiff_t>(rng() % members.size()));
  return at;
}

void count(json& number, Rng& rng) {
  const auto before = number.get<std::uint64_t>();
  const std::uint64_t steps[] = {before + 1, before - 1, before * 2, ~before + 1};
  number = static_cast<std::int64_t>(steps[rng() % 4]);
}

void change_object(json& object, const json& members, Rng& rng) {
  const bool removes = !object.empty() && rng() % 3 == 0;
  const auto known = any_member(removes ? object : members, rng);
  if (removes)
    object.erase(std::string(known.key()));
  else
    object[known.key()] = known.value();
}

void change_array(json& array, Rng& rng) {
  if (array.empty()) {
    array.push_back(any_of(any_values(), rng));
  } else if (rng() % 2 == 0) {
    array.erase(rng() % array.size());
  } else {
    const json again = array[rng() % array.size()];
    array.insert(array.begin() + static_cast<std::ptrdiff_t>(rng() % array.size()), again);
  }
}

void change(json& document, const json& members, Rng& rng) {
  std::vector<json*> values;
  collect(document, values);
  json& value = *any_of(values, rng);
  const auto kind = rng() % 6;
  if (kind == 0 && &value != &document) {
    value = any_of(any_values(), rng);
  } else if (kind == 1 && &value != &document) {
    const json copy = *any_of(values, rng);  // of what may contain `value`
    value = copy;
  } else if (value.is_object()) {
    change_object(value, members, rng);
  } else if (value.is_array()) {
    change_array(value, rng);
  } else if (value.is_number_integer()) {
    count(value, rng);
  } else {
    value = any_of(any_values(), rng);
  }
}

}  // namespace

std::string mutate_json(std::string_view text, const json& members, Rng& rng) {
  json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) document = members;
  for (auto changes = 1 + rng() % 3; changes > 0; --changes) change(document, members, rng);
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace grapevine::fuzzing
