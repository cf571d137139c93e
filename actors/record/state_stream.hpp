// StateStream: a state, part after part, to a receiver that keeps up; PartialState: what has
// arrived.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "messages/frozen_tensor.hpp"
#include "messages/protocol.hpp"

namespace grapevine {

// At most kWindow parts are on their way: sent, and not reported as arrived. Sends nothing. Not
// thread-safe.
class StateStream {
 public:
  static constexpr std::int64_t kPart = std::int64_t{4} << 20;  // the usual bytes of a part
  static constexpr std::size_t kWindow = 4;

  // The bytes of one state in order, in vectors of u8 of which none is empty. They never change.
  // Streams to several receivers share them, and the last stream releases them; a message on its
  // way holds its own part.
  using Parts = std::shared_ptr<const std::vector<FrozenTensor>>;

  // `transfer`: of its StateChunks. REQUIRES: `parts` is not null.
  StateStream(std::int64_t transfer, Parts parts);

  // The next part; none where the window is full, or all are sent.
  std::optional<StateChunk> next();
  // The receiver has so many bytes. False: that cannot be, or was known.
  bool arrived(std::int64_t bytes);
  // The receiver has all of them.
  bool done() const { return arrived_ == parts_->size(); }

  std::int64_t transfer() const { return transfer_; }
  const std::vector<FrozenTensor>& parts() const { return *parts_; }

 private:
  std::int64_t transfer_;
  Parts parts_;
  std::int64_t total_ = 0;                     // bytes
  std::size_t sent_ = 0, arrived_ = 0;         // parts
  std::int64_t sent_to_ = 0, arrived_to_ = 0;  // their bytes
};

// A state as far as its parts have arrived. Its memory follows what has arrived, not what is
// announced: while it grows it holds up to one and a half times the state. Not thread-safe.
class PartialState {
 public:
  // Takes the next part. False: it does not follow the one before it, is empty, is no contiguous
  // vector of u8, or announces another length of the whole.
  bool add(const StateChunk& part);
  std::int64_t arrived() const { return static_cast<std::int64_t>(bytes_.size()); }  // bytes
  std::int64_t total() const { return total_; }  // bytes of the whole; 0: nothing has arrived
  bool is_complete() const { return total_ > 0 && arrived() == total_; }
  // What has arrived. This object is empty then, and holds no memory.
  std::vector<char> take();

 private:
  std::vector<char> bytes_;
  std::int64_t total_ = 0;
};

}  // namespace grapevine
