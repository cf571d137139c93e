// The body of a message in the queue of a link (shm_ring.hpp), behind its RecordHeader:
//   MessageHead
//   the codec's header, padded to 8 bytes
//   a TensorPart for each tensor of that header
//   the bytes of the tensors that are `inlined`, each padded to 8 bytes
// Those in `fragments` follow in records of their own, one tensor after the other.
//
// And the packets on the socket of a link. A packet of one byte is a bell: there are records.
#pragma once
#include <cstddef>
#include <cstdint>

namespace grapevine::shm {

struct MessageHead {
  std::uint32_t header_bytes = 0;
  std::uint32_t tensors = 0;
};

enum class Where : std::uint32_t { nowhere = 0, inlined = 1, fragments = 2, block = 3 };

struct TensorPart {
  Where where = Where::nowhere;
  // For `block`: it lies in that segment, at that offset, and is returned by its slot.
  std::uint32_t segment = 0;
  std::uint32_t slot = 0;
  std::uint32_t exclusive = 0;  // 1: the sender reads it no more, the receiver may write it
  std::uint64_t offset = 0;
};
static_assert(sizeof(MessageHead) == 8 && sizeof(TensorPart) == 24, "no padding");

inline constexpr std::uint64_t kMostInlined = 8 << 10;      // bytes of a tensor
inline constexpr std::uint64_t kMostInlinedAll = 32 << 10;  // bytes of the tensors of a message
inline constexpr std::uint64_t kFragmentBytes = 32 << 10;

// Comes with the descriptor of the segment, before the first message with a block of it.
struct SegmentPacket {
  static constexpr std::uint32_t kMagic = 0x53535647;  // "GVSS" in memory order
  std::uint32_t magic = kMagic;
  std::uint32_t segment = 0;
  std::uint64_t bytes = 0;
};

}  // namespace grapevine::shm
