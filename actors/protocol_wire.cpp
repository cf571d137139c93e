#include "actors/protocol_wire.hpp"

#include <caf/sec.hpp>

#include <limits>

#include "actors/state_bytes.hpp"
#include "messages/codec.hpp"

namespace grapevine {
namespace {

template <class Archive>
caf::error bytes_of(Archive& archive, void* data, std::uint64_t size) {
  return size == 0 ? caf::error{} : archive.apply_raw(static_cast<std::size_t>(size), data);
}

}  // namespace

// As the payload of a message between ranks, whose codec checks every length.
caf::error inspect(caf::serializer& sink, FrozenTensor& tensor) {
  Envelope envelope;
  envelope.payload = Share{0, 0, tensor};
  EncodedHeader header = encode_header(envelope);
  std::uint32_t size = static_cast<std::uint32_t>(header.size());
  if (auto error = sink(size)) return error;
  if (auto error = bytes_of(sink, header.data(), size)) return error;
  return bytes_of(sink, const_cast<void*>(tensor.defined() ? tensor.raw() : nullptr),
                  tensor.nbytes());
}

caf::error inspect(caf::deserializer& source, FrozenTensor& tensor) {
  std::uint32_t size = 0;
  if (auto error = source(size)) return error;
  if (size > kMaxHeaderBytes) return caf::sec::end_of_stream;
  std::vector<std::byte> header(size);
  if (auto error = bytes_of(source, header.data(), size)) return error;
  auto decoded = decode_header(header.data(), header.size(), CodecLimits{});
  if (!decoded) return caf::sec::end_of_stream;
  std::vector<at::Tensor> payload = allocate_payload(*decoded);
  if (payload.size() != 1) return caf::sec::end_of_stream;
  const std::uint64_t bytes = decoded->payload_bytes();
  if (bytes > 0)
    if (auto error = bytes_of(source, payload.front().data_ptr(), bytes)) return error;
  auto envelope = assemble(*std::move(decoded), std::move(payload));
  if (!envelope) return caf::sec::end_of_stream;
  auto* share = std::get_if<Share>(&envelope->payload);
  if (share == nullptr) return caf::sec::end_of_stream;
  tensor = std::move(share->x);
  return {};
}

caf::error inspect(caf::serializer& sink, StateDict& state) {
  std::vector<char> bytes = to_bytes(state);
  std::uint64_t size = bytes.size();
  if (auto error = sink(size)) return error;
  return bytes_of(sink, bytes.data(), size);
}

caf::error inspect(caf::deserializer& source, StateDict& state) {
  std::uint64_t size = 0;
  if (auto error = source(size)) return error;
  if (size > std::numeric_limits<std::uint32_t>::max()) return caf::sec::end_of_stream;
  std::vector<char> bytes(static_cast<std::size_t>(size));
  if (auto error = bytes_of(source, bytes.data(), size)) return error;
  auto read = from_bytes(bytes);
  if (!read) return caf::sec::end_of_stream;
  state = *std::move(read);
  return {};
}

caf::error inspect(caf::serializer& sink, Error& error) {
  auto code = static_cast<std::int32_t>(error.code);
  return sink(code, error.message);
}

caf::error inspect(caf::deserializer& source, Error& error) {
  std::int32_t code = 0;
  if (auto failed = source(code, error.message)) return failed;
  const bool known = code >= 0 && code <= static_cast<std::int32_t>(Errc::stopped);
  error.code = known ? static_cast<Errc>(code) : Errc::failed;
  return {};
}

}  // namespace grapevine
