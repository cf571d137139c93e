// PackedLists: the lists of a message between processes, for its inspect(), in few bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <caf/error.hpp>
#include <caf/sec.hpp>

#include "actors/protocol/packed_integers.hpp"
#include "algorithms/awaited.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Writes lists, or reads them: one function of a message does both. False, always in reading: the
// bytes are not of these lists.
class ListArchive {
 public:
  explicit ListArchive(std::string& to) : to_(&to), from_(std::string_view()) {}
  explicit ListArchive(std::string_view from) : from_(from) {}

  bool operator()(std::vector<std::int32_t>& values) { return list(values); }
  bool operator()(std::map<std::int64_t, std::int64_t>& counts) {
    return keyed(counts, [this](Integers& values) { return exact(values); });
  }
  // Values of each rank; differences of them take at most `most_bytes`, see pack_within().
  template <class Value>
  bool within(std::map<Rank, Value>& values, std::size_t most_bytes) {
    return keyed(values, [=](Integers& column) { return rounded(column, most_bytes); });
  }
  bool operator()(std::map<Rank, std::vector<std::int64_t>>& lists);
  // The senders and kinds are exact; the numbers of each kind take at most `most_bytes`.
  bool within(std::vector<Awaited>& waits, std::size_t most_bytes);

  bool exact(Integers& values) {
    if (to_ == nullptr) return read(values);
    pack(values, *to_);
    return true;
  }
  bool rounded(Integers& values, std::size_t most_bytes) {
    if (to_ == nullptr) return read(values);
    pack_within(values, most_bytes, *to_);
    return true;
  }
  bool loads() const { return to_ == nullptr; }
  bool at_end() const { return from_.at_end(); }

 private:
  bool read(Integers& values) {
    auto taken = from_.take();
    if (!taken) return false;
    values = *std::move(taken);
    return true;
  }

  template <class Value>
  bool list(std::vector<Value>& values) {
    Integers column(values.begin(), values.end());
    if (!exact(column)) return false;
    if (loads()) values.assign(column.begin(), column.end());
    return true;
  }

  template <class Key, class Value, class Column>
  bool keyed(std::map<Key, Value>& map, Column column) {
    Integers keys, values;
    for (const auto& [key, value] : map) {
      keys.push_back(static_cast<std::int64_t>(key));
      values.push_back(static_cast<std::int64_t>(value));
    }
    if (!exact(keys) || !column(values) || keys.size() != values.size()) return false;
    if (!loads()) return true;
    map.clear();
    for (std::size_t i = 0; i < keys.size(); ++i)
      map.emplace_hint(map.end(), static_cast<Key>(keys[i]), static_cast<Value>(values[i]));
    return true;
  }

  std::string* to_ = nullptr;  // null: reads
  PackedReader from_;
};

// `bytes` is a field of the message; restore() is for caf::meta::load_callback, once they have been
// read. `columns(ListArchive&)` names the lists, which outlive this object.
template <class Columns>
class PackedLists {
 public:
  explicit PackedLists(Columns columns) : columns_(std::move(columns)), bytes(packed()) {}

  // Errors: the bytes are not those that these lists are written as, for example because a number
  // is too large for its type.
  caf::error restore() {
    ListArchive archive{std::string_view(bytes)};
    const bool read = columns_(archive) && archive.at_end();
    return read && packed() == bytes ? caf::error() : caf::error(caf::sec::end_of_stream);
  }

 private:
  std::string packed() {
    std::string written;
    ListArchive archive(written);
    columns_(archive);
    return written;
  }

  Columns columns_;

 public:
  std::string bytes;
};

// The lists, one after the other.
inline bool ListArchive::operator()(std::map<Rank, std::vector<std::int64_t>>& lists) {
  Integers ranks, lengths, all;
  for (const auto& [rank, list] : lists) {
    ranks.push_back(rank);
    lengths.push_back(static_cast<std::int64_t>(list.size()));
    all.insert(all.end(), list.begin(), list.end());
  }
  if (!exact(ranks) || !exact(lengths) || !exact(all) || ranks.size() != lengths.size())
    return false;
  if (!loads()) return true;
  lists.clear();
  auto rest = static_cast<std::int64_t>(all.size());
  auto next = all.begin();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > rest) return false;
    lists[static_cast<Rank>(ranks[i])].assign(next, next + lengths[i]);
    next += lengths[i];
    rest -= lengths[i];
  }
  return rest == 0;
}

inline bool ListArchive::within(std::vector<Awaited>& waits, std::size_t most_bytes) {
  Integers from, payloads, operations, part, parts;
  for (const Awaited& one : waits) {
    from.push_back(one.from);
    payloads.push_back(static_cast<std::int64_t>(one.payload));
    operations.push_back(one.operation);
    part.push_back(one.part);
    parts.push_back(one.parts);
  }
  if (!exact(from) || !exact(payloads)) return false;
  for (Integers* column : {&operations, &part, &parts})
    if (!rounded(*column, most_bytes)) return false;
  for (const Integers* column : {&payloads, &operations, &part, &parts})
    if (column->size() != from.size()) return false;
  if (!loads()) return true;
  waits.clear();
  for (std::size_t i = 0; i < from.size(); ++i)
    waits.push_back({static_cast<Rank>(from[i]), static_cast<PayloadKind>(payloads[i]),
                     operations[i], static_cast<std::int32_t>(part[i]),
                     static_cast<std::int32_t>(parts[i])});
  return true;
}

}  // namespace grapevine
