// PulledSlices: the answers of all servers to one exchange of a client, and the versions of theta
// that it computes at. A part of the server client.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "algorithms/archive.hpp"
#include "messages/frozen_tensor.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role.
class PulledSlices {
 public:
  explicit PulledSlices(std::int32_t servers)
      : slices_(static_cast<std::size_t>(servers)),
        versions_(slices_.size(), 0),
        next_(versions_) {}

  void take_in(std::int32_t server, Version version, FrozenTensor slice);
  bool has(std::int32_t server) const {
    return slices_[static_cast<std::size_t>(server)].defined();
  }
  // Whether all servers have answered.
  bool complete() const;
  // By server: of the answers that were taken last.
  const std::vector<Version>& versions() const { return versions_; }
  // The answers in one vector, [d], the successor of `before`, [d]; none are left. That of a single
  // server is itself. REQUIRES: complete().
  FrozenTensor take(const FrozenTensor& before);

  // `size_of`: of the slice of a server.
  void fields(Archive& a, const std::function<std::int64_t(std::int32_t server)>& size_of);
  // The versions alone.
  void version_fields(Archive& a);

 private:
  std::vector<FrozenTensor> slices_;  // by server; undefined: no answer yet
  std::vector<Version> versions_, next_;
};

}  // namespace grapevine
