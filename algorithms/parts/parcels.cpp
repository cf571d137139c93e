#include "algorithms/parts/parcels.hpp"

#include <string>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {

void Parcels::send(std::int64_t exchange, std::vector<Step> steps, std::int32_t servers) {
  open_[exchange] = {std::move(steps), servers, false};
}

std::optional<Parcels::Settled> Parcels::settle(std::int64_t exchange, bool accepted) {
  const auto found = open_.find(exchange);
  GRAPEVINE_CHECK(found != open_.end(), "a receipt for nothing");
  Parcel& parcel = found->second;
  parcel.refused = parcel.refused || !accepted;
  if (--parcel.receipts_due > 0) return std::nullopt;
  Settled settled{std::move(parcel.steps), parcel.refused};
  open_.erase(found);
  return settled;
}

StateDict Parcels::save() const {
  StateDict state;
  std::vector<std::int64_t> exchanges;
  for (const auto& [exchange, parcel] : open_) {
    exchanges.push_back(exchange);
    StateDict entry;
    entry.put_list("steps", parcel.steps);
    entry.put("due", parcel.receipts_due);
    entry.put("refused", std::int64_t{parcel.refused});
    state.put_all(std::to_string(exchange), entry);
  }
  state.put_list("exchanges", exchanges);
  return state;
}

Expected<void> Parcels::load(const StateDict& state, std::int32_t servers) {
  const auto exchanges = state.list("exchanges");
  if (!exchanges) return exchanges.error();
  std::map<std::int64_t, Parcel> loaded;
  for (const std::int64_t exchange : *exchanges) {
    const StateDict entry = state.under(std::to_string(exchange));
    const auto due = entry.integer_in("due", 1, servers),
               refused = entry.integer_in("refused", 0, 1);
    for (const auto* field : {&due, &refused})
      if (!*field) return field->error();
    auto steps = entry.list("steps");
    if (!steps) return steps.error();
    loaded[exchange] = {std::move(*steps), *due, *refused != 0};
  }
  open_ = std::move(loaded);
  return {};
}

}  // namespace grapevine
