// States of ranks in the input of the fuzzer of checkpoints: JSON objects, whose members are the
// entries. A whole number, a number or a text is itself; an array of whole numbers is a list, and
// {"sizes": […], "strides": […], "dtype": …} a tensor, whose memory may be shorter than its sizes
// say, as where it has been expanded.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "algorithms/state_dict.hpp"

namespace grapevine::fuzzing {

using nlohmann::json;

constexpr std::int64_t kMostSize = 64;
constexpr std::size_t kMostDimensions = 3;

// Small ones, so that tensors need little memory.
inline std::vector<std::int64_t> small_numbers(const json& array) {
  std::vector<std::int64_t> numbers;
  for (const json& number : array) {
    const bool whole = number.is_number_integer() && numbers.size() < kMostDimensions;
    if (whole) numbers.push_back(number.get<std::int64_t>() & (kMostSize - 1));
  }
  return numbers;
}

inline json member(const json& object, const char* name) {
  return object.is_object() && object.count(name) > 0 ? object[name] : json::array();
}

inline at::Tensor tensor_of(const json& object) {
  const std::vector<std::int64_t> sizes = small_numbers(member(object, "sizes"));
  std::vector<std::int64_t> strides = small_numbers(member(object, "strides"));
  strides.resize(sizes.size(), 1);
  const std::vector<std::int64_t> dtype = small_numbers(json::array({member(object, "dtype")}));
  constexpr at::ScalarType kTypes[] = {at::kByte, at::kFloat, at::kDouble, at::kHalf,
                                       at::kLong, at::kInt,   at::kBool};
  constexpr std::size_t kCount = std::size(kTypes);
  const auto type = dtype.empty() ? 0 : static_cast<std::size_t>(dtype[0]) % kCount;
  return at::empty_strided(sizes, strides, kTypes[type]).zero_();
}

inline bool is_list(const json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const json& number) {
           return number.is_number_integer();
         });
}

inline at::Tensor list_of(const json& array) {
  return at::tensor(array.get<std::vector<std::int64_t>>(), at::kLong);
}

// The state, as a program has put it.
inline StateDict state_of(const json& object) {
  StateDict state;
  if (!object.is_object()) return state;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number_integer())
      state.put(name, value.get<std::int64_t>());
    else if (value.is_number())
      state.put(name, value.get<double>());
    else if (value.is_string())
      state.put(name, value.get<std::string>());
    else if (is_list(value))
      state.put(name, list_of(value));
    else if (value.is_object())
      state.put(name, tensor_of(value));
  }
  return state;
}

// A dict as another program may have pickled it: its values have types that no state has, too.
inline at::IValue dict_of(const json& object) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [name, value] : object.items()) {
    if (value.is_number_integer())
      dict.insert(name, value.get<std::int64_t>());
    else if (value.is_number())
      dict.insert(name, value.get<double>());
    else if (value.is_boolean())
      dict.insert(name, value.get<bool>());
    else if (value.is_string())
      dict.insert(name, value.get<std::string>());
    else if (is_list(value))
      dict.insert(name, list_of(value));
    else if (value.is_object())
      dict.insert(name, tensor_of(value));
    else
      dict.insert(name, at::IValue());
  }
  return dict;
}

}  // namespace grapevine::fuzzing
