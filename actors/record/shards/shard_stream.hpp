// ShardStream: the state of a rank, part after part, to a receiver that keeps up.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "messages/protocol.hpp"

namespace grapevine {

// The transfer of a StateChunk that belongs to a checkpoint is minus the number of its cut. Other
// chunks belong to changes of members.
inline std::int64_t transfer_of_cut(std::int64_t cut) { return -cut; }
inline bool is_of_cut(const StateChunk& chunk) { return chunk.transfer < 0; }
inline std::int64_t cut_of(const StateChunk& chunk) { return -chunk.transfer; }

// At most kWindow bytes are on their way. Sends nothing. Not thread-safe.
class ShardStream {
 public:
  static constexpr std::int64_t kPart = std::int64_t{4} << 20;
  static constexpr std::int64_t kWindow = 4 * kPart;

  ShardStream(std::int64_t cut, std::vector<char> bytes) : cut_(cut), bytes_(std::move(bytes)) {}

  // The next part; none where the window is full, or all are sent.
  std::optional<StateChunk> next();
  // The receiver has stored so many bytes. False: that cannot be.
  bool stored(std::int64_t bytes);
  bool done() const { return stored_ == size(); }

  std::int64_t cut() const { return cut_; }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }

  std::int64_t cut_;
  std::vector<char> bytes_;
  std::int64_t sent_ = 0, stored_ = 0;
};

}  // namespace grapevine
