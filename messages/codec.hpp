// The wire format of an Envelope: a header of explicit little-endian fields, then the raw bytes of
// each tensor, in the order of the header's descriptors, without padding. Format 1:
//
//   offset  size
//        0     4  magic "GVNE"
//        4     2  format version
//        6     1  payload kind: the number of PayloadKind (payload_kind.hpp)
//        7     1  zero
//        8     4  bytes of the whole header
//       12     4  from
//       16     4  to
//       20     4  stamp.origin
//       24     8  stamp.step
//       32     8  stamp.version
//       40     8  stamp.sent, ns
//       48     8  stamp.sequence
//       56     2  stamp.hop
//       58     6  zero
//       64     …  the payload's fields in the order of protocol.hpp: scalars as themselves, doubles
//                 as their IEEE 754 bits, flags as 0 or 1 in a byte, a tensor as its descriptor;
//                 a text or list as its length in a byte, then its characters or elements
//
// Descriptor: dtype u8 (0 absent, 1 f32, 2 f64, 3 f16, 4 bf16, 5 i32, 6 i64, 7 u8), dimensions u8,
// zero u16, bytes u64, then one i64 per dimension. An absent (undefined) tensor has no dimensions
// and no bytes.
//
// One message has one encoding: decoding accepts exactly what encoding produces, so that bytes that
// decode encode to themselves. Every length is checked against CodecLimits before anything is
// allocated. All functions are thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "messages/envelope.hpp"
#include "messages/expected.hpp"

namespace grapevine {

inline constexpr std::uint16_t kCodecVersion = 1;
inline constexpr std::size_t kHeaderPrefixBytes = 12;  // the bytes that header_size() needs
inline constexpr std::size_t kMaxHeaderBytes = 1024;   // no header of this version is longer
inline constexpr std::size_t kMaxTensorDimensions = 8;

// The limits of a receiver. The defaults admit any message of one host's memory; a transport sets
// the world size of its job.
struct CodecLimits {
  std::uint64_t max_payload_bytes = std::uint64_t{1} << 36;  // of all tensors of a message together
  std::int64_t max_elements = std::int64_t{1} << 34;         // of one tensor
  std::int32_t world_size = std::numeric_limits<std::int32_t>::max();
};

using EncodedHeader = std::vector<std::byte>;

struct TensorDescriptor {
  bool present = false;  // false: an undefined tensor
  at::ScalarType dtype = at::ScalarType::Float;
  std::vector<std::int64_t> sizes;
  std::uint64_t bytes = 0;
};

// A checked header: all of the message but its tensors.
struct DecodedHeader {
  Envelope envelope;  // its tensors are empty
  std::vector<TensorDescriptor> tensors;

  std::uint64_t payload_bytes() const;
};

// For a transport that sends the payload without a copy: the header, and the tensors whose
// bytes follow it (undefined ones included: they follow with no bytes). REQUIRES: dtypes of the
// list above, at most kMaxTensorDimensions dimensions, an Extension within its limits.
EncodedHeader encode_header(const Envelope& envelope);
std::vector<FrozenTensor> payload_of(const Envelope& envelope);

// The message's kind in words (name_of(PayloadKind)); of an Extension the name of its type.
std::string payload_name(const Payload& payload);

// Bytes that the message takes on the wire, header and payload; encodes nothing.
std::uint64_t wire_size(const Envelope& envelope);

// Length of the header that starts at `data`, for transports that read a stream; at most
// kMaxHeaderBytes. Errors (protocol): fewer than kHeaderPrefixBytes, another magic or version.
Expected<std::size_t> header_size(const std::byte* data, std::size_t size);

// REQUIRES: data[0, size) is the header alone. Errors (protocol): anything that encode_header does
// not produce, a rank outside the world, a payload beyond the limits; the message names the field.
Expected<DecodedHeader> decode_header(const std::byte* data, std::size_t size,
                                      const CodecLimits& limits);

// Uninitialised host tensors to receive the payload into, one per descriptor; undefined where the
// descriptor is not present.
std::vector<at::Tensor> allocate_payload(const DecodedHeader& header);

// Joins a header with its received tensors, which are frozen without a copy where they are the only
// handles. Errors (protocol): a count, dtype or shape other than the header's.
Expected<Envelope> assemble(DecodedHeader header, std::vector<at::Tensor> payload);

// Header and payload in one buffer. REQUIRES: tensors on the CPU, and as for encode_header.
std::vector<std::byte> encode(const Envelope& envelope);
// Errors (protocol): as decode_header; missing or trailing bytes.
Expected<Envelope> decode(const std::byte* data, std::size_t size, const CodecLimits& limits);

}  // namespace grapevine
