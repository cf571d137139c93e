#include "gpu/nccl_choice.hpp"

#include <cstddef>
#include <map>
#include <utility>

namespace grapevine {
namespace {

// What speaks against NCCL; empty: nothing.
std::string obstacle(const std::vector<RankPlace>& places, bool built_in) {
  if (places.size() < 2) return "there is nobody to exchange with";
  if (!built_in) return "this build has no NCCL";
  std::map<std::string, std::size_t> first_on;  // card -> rank
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const RankPlace& place = places[rank];
    const std::string name = "rank " + std::to_string(rank);
    if (place.device.empty()) return name + " computes on the CPU of " + place.host;
    if (place.host != places.front().host)
      return name + " is on " + place.host + ", rank 0 on " + places.front().host;
    const auto [known, is_new] = first_on.emplace(place.device, rank);
    if (!is_new)
      return "ranks " + std::to_string(known->second) + " and " + std::to_string(rank) +
             " share the card " + place.device + " of " + place.host;
  }
  return "";
}

}  // namespace

NcclChoice choose_nccl(const std::vector<RankPlace>& places, bool built_in) {
  const std::string group = "group of " + std::to_string(places.size()) + " ranks: ";
  const std::string against = obstacle(places, built_in);
  if (!against.empty()) return {false, group + "exchange through host memory, as " + against};
  return {true, group + "exchange by NCCL, a card each on " + places.front().host};
}

}  // namespace grapevine
