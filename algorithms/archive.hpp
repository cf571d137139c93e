// Archive: the fields of a role's or part's state, listed once. The same list saves them to a
// checkpoint and loads them from one, every value checked.
//
//   void GradientTracker::fields(Archive& a) {
//     a.vector("y", y_, d_);
//     a.vector("newest", newest_, d_);
//     a.require(y_.defined() == newest_.defined(), "y", "has no gradient beside it");
//   }
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "algorithms/state_dict.hpp"
#include "messages/expected.hpp"
#include "messages/frozen_tensor.hpp"

namespace grapevine {

// Not thread-safe. Loading keeps the first error; what is read after it stays as it was. After an
// error the object that was loaded must not be used.
class Archive {
 public:
  // Both outlive the archive.
  static Archive saver(StateDict& to) { return {&to, nullptr}; }
  static Archive loader(const StateDict& from) { return {nullptr, &from}; }

  bool loads() const { return from_ != nullptr; }
  bool ok() const { return !error_.has_value(); }
  Expected<void> result() const { return error_ ? Expected<void>(*error_) : Expected<void>(); }

  // A whole number or enumerator in [least, most].
  template <class Whole>
  void whole(const std::string& name, Whole& value, std::int64_t least, std::int64_t most) {
    std::int64_t number = static_cast<std::int64_t>(value);
    read_or_write(name, number, least, most);
    if (loads() && ok()) value = static_cast<Whole>(number);
  }
  // Any that the type holds.
  template <class Whole>
  void whole(const std::string& name, Whole& value) {
    whole(name, value, std::numeric_limits<Whole>::min(), std::numeric_limits<Whole>::max());
  }
  // A number that only grows during a run.
  template <class Whole>
  void count(const std::string& name, Whole& value, std::int64_t least = 0) {
    whole(name, value, least, std::numeric_limits<std::int64_t>::max() / 2);
  }
  // The last enumerator of a list that begins with 0.
  template <class Enum>
  void one_of(const std::string& name, Enum& value, Enum last) {
    whole(name, value, 0, static_cast<std::int64_t>(last));
  }
  void flag(const std::string& name, bool& value) { whole(name, value, 0, 1); }
  // Finite.
  void number(const std::string& name, double& value);
  void text(const std::string& name, std::string& value);
  // Whole numbers in [least, most].
  template <class Whole>
  void list(const std::string& name, std::vector<Whole>& values, std::int64_t least,
            std::int64_t most) {
    std::vector<std::int64_t> numbers(values.begin(), values.end());
    read_or_write(name, numbers, least, most);
    if (loads() && ok()) values.assign(numbers.begin(), numbers.end());
  }
  template <class Whole>
  void list(const std::string& name, std::vector<Whole>& values) {
    list(name, values, std::numeric_limits<Whole>::min(), std::numeric_limits<Whole>::max());
  }
  // [d] float32, or undefined. A saved at::Tensor is a copy, a FrozenTensor is shared. Loaded, it
  // is on the device of the saved state (StateDict::device).
  void vector(const std::string& name, at::Tensor& value, std::int64_t d) {
    read_or_write(name, value, d);
  }
  void vector(const std::string& name, FrozenTensor& value, std::int64_t d) {
    read_or_write(name, value, d);
  }
  // Of any shape and type, or undefined. In the host's memory.
  void tensor(const std::string& name, at::Tensor& value) { read_or_write(name, value, {}); }
  void tensor(const std::string& name, FrozenTensor& value) { read_or_write(name, value, {}); }
  // A model's values, of any shape and type, or undefined. Loaded, real numbers are on the state's
  // device, all other values in the host's memory.
  template <class AnyTensor>
  void values(const std::string& name, AnyTensor& value) {
    tensor(name, value);
    if (loads() && ok()) to_device(value);
  }

  // Copies a value that was loaded by other means to the state's device, if it is of real numbers.
  void to_device(at::Tensor& value) const;
  void to_device(FrozenTensor& value) const;

  // Fields of a part that works in the host's memory wherever the model is.
  template <class Visit>
  void on_host(Visit visit) {
    const bool before = std::exchange(host_only_, true);
    visit(*this);
    host_only_ = before;
  }

  // A part, whose fields(Archive&, context…) lists its own state; under "<name>.".
  template <class Part, class... Context>
  void part(const std::string& name, Part& part, Context&&... context) {
    nested(name, [&](Archive& inner) { part.fields(inner, std::forward<Context>(context)...); });
  }
  // Whether a part that may be absent is there. Loading makes it of `made`, for its fields to be
  // loaded, or resets it.
  template <class Part, class... Made>
  bool present(const std::string& name, std::optional<Part>& part, Made&&... made) {
    if (loads() && ok()) {
      part.reset();
      if (has(name)) part.emplace(std::forward<Made>(made)...);
    }
    return part.has_value();
  }
  // Elements of one kind: visit(inner, element) lists the fields of each; under "<name>.<i>.".
  template <class Elements, class Visit>
  void items(const std::string& name, Elements& elements, Visit visit) {
    counted(name + ".count", name + ".", elements, visit);
  }
  // The same with the names given: the entry `count` and, for each, "<prefix><i>.". A vector or
  // deque.
  template <class Elements, class Visit>
  void counted(const std::string& count_name, const std::string& prefix, Elements& elements,
               Visit visit, std::int64_t most = kMostItems) {
    auto count = static_cast<std::int64_t>(elements.size());
    whole(count_name, count, 0, most);
    if (loads() && ok()) elements.clear();
    for (std::int64_t i = 0; ok() && i < count; ++i) {
      if (loads()) elements.emplace_back();  // one by one: the number may be damaged
      const auto at = static_cast<std::size_t>(i);
      nested(prefix + std::to_string(i), [&](Archive& inner) { visit(inner, elements[at]); });
    }
  }
  // A map: its keys, ascending, as the list `keys`; visit(inner, value) lists the fields of each
  // value, under "<prefix><key>.".
  template <class Key, class Value, class Visit>
  void keyed(const std::string& keys_name, const std::string& prefix, std::map<Key, Value>& values,
             Visit visit) {
    std::vector<Key> keys;
    for (const auto& entry : values) keys.push_back(entry.first);
    list(keys_name, keys);
    if (loads() && ok()) values.clear();
    for (std::size_t i = 0; ok() && i < keys.size(); ++i) {
      require(i == 0 || keys[i - 1] < keys[i], keys_name, "does not ascend");
      if (!ok()) return;
      nested(prefix + std::to_string(keys[i]),
             [&](Archive& inner) { visit(inner, values[keys[i]]); });
    }
  }
  // A map whose keys are more than a number: visit(inner, key, value) lists the fields of each
  // entry; under "<name>.<i>.". `twice`: the error of a key that is there twice.
  template <class Key, class Value, class Visit>
  void entries(const std::string& name, std::map<Key, Value>& values, const std::string& twice,
               Visit visit) {
    std::vector<std::pair<Key, Value>> list(values.begin(), values.end());
    items(name, list, [&visit](Archive& inner, std::pair<Key, Value>& entry) {
      visit(inner, entry.first, entry.second);
    });
    if (!loads() || !ok()) return;
    values.clear();
    for (auto& entry : list) require(values.insert(std::move(entry)).second, name, twice);
  }
  // Fields that a function lists, under "<name>.".
  template <class Visit>
  void nested(const std::string& name, Visit visit) {
    if (!ok()) return;
    StateDict inner_state = loads() ? from_->under(name) : StateDict();
    Archive inner = loads() ? loader(inner_state) : saver(inner_state);
    inner.host_only_ = host_only_;
    visit(inner);
    if (!inner.ok())
      error_ = inner.error_;
    else if (!loads())
      to_->put_all(name, inner_state);
  }

  // Whether the saved state has the entry, or a part of that name; where it saves: `saved`.
  bool has(const std::string& name, bool saved = true) const;
  // Refuses a state without it.
  void needs(const std::string& name) { require(has(name), name, "is missing"); }
  // Of what was loaded: `what` follows "entry '<name>' of the saved state".
  void require(bool holds, const std::string& name, const std::string& what);
  void fail(Error error) {
    if (loads() && ok()) error_ = std::move(error);
  }

 private:
  static constexpr std::int64_t kMostItems = std::int64_t{1} << 32;

  Archive(StateDict* to, const StateDict* from) : to_(to), from_(from) {}
  void read_or_write(const std::string& name, std::int64_t& value, std::int64_t least,
                     std::int64_t most);
  void read_or_write(const std::string& name, std::vector<std::int64_t>& values, std::int64_t least,
                     std::int64_t most);
  // d: [d] float32; none: any form.
  void read_or_write(const std::string& name, at::Tensor& value, std::optional<std::int64_t> d);
  void read_or_write(const std::string& name, FrozenTensor& value, std::optional<std::int64_t> d);
  // Undefined where there is none, or it is damaged.
  at::Tensor read_tensor(const std::string& name, std::optional<std::int64_t> d);

  StateDict* to_;
  const StateDict* from_;
  bool host_only_ = false;
  std::optional<Error> error_;
};

// The state of an object with fields(Archive&, context…).
template <class Part, class... Context>
StateDict save_state(const Part& part, Context&&... context) {
  StateDict state;
  Archive archive = Archive::saver(state);
  // A saver writes to the state alone.
  const_cast<Part&>(part).fields(archive, std::forward<Context>(context)...);
  return state;
}

template <class Part, class... Context>
Expected<void> load_state(Part& part, const StateDict& state, Context&&... context) {
  Archive archive = Archive::loader(state);
  part.fields(archive, std::forward<Context>(context)...);
  return archive.result();
}

}  // namespace grapevine
