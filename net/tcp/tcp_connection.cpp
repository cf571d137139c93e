#include "net/tcp/tcp_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace grapevine::tcp {
namespace {

// Bytes handed to CAF and not yet to the kernel, per connection: one piece being written, one ready
// to follow it.
constexpr std::size_t kUnsentBytes = 2 * kTcpPieceBytes;

std::size_t size_of(const OutFrame& frame) {
  std::size_t size = frame.bytes.size();
  for (const FrozenTensor& t : frame.payload) size += t.nbytes();
  return size;
}

// Calls write(data, count) for the bytes from `offset` on, `limit` of them at most.
template <class Write>
void for_bytes(const OutFrame& frame, std::size_t offset, std::size_t limit, Write write) {
  const auto part = [&](const void* data, std::size_t size) {
    const std::size_t skipped = std::min(offset, size);
    const std::size_t count = std::min(size - skipped, limit);
    if (count > 0) write(static_cast<const char*>(data) + skipped, count);
    offset -= skipped;
    limit -= count;
  };
  part(frame.bytes.data(), frame.bytes.size());
  for (const FrozenTensor& t : frame.payload)
    if (t.nbytes() > 0) part(t.raw(), t.nbytes());
}

}  // namespace

void Connection::fill(std::vector<char>& buffer) {
  while (unsent < kUnsentBytes && !queue.empty()) {
    const OutFrame& frame = queue.front();
    for_bytes(frame, written, kUnsentBytes - unsent, [&](const char* data, std::size_t count) {
      buffer.insert(buffer.end(), data, data + count);
      written += count;
      unsent += count;
    });
    if (written < size_of(frame)) break;
    queue.pop_front();  // lets go of the tensors
    written = 0;
  }
}

OutFrame frame_of(std::variant<EncodedMessage, Departure> what) {
  if (const auto* departure = std::get_if<Departure>(&what))
    return {encode_control({Control::rank_down, departure->rank}), {}};
  auto& message = std::get<EncodedMessage>(what);
  return {std::move(message.header), std::move(message.payload)};
}

Expected<void> Receiver::admit(Rank from, Rank to) {
  if (!lives_there(from))
    return Error{Errc::protocol,
                 fmt::format("a message from rank {}, which is not in that process", from)};
  if (!router_.placement().is_local(to))
    return Error{Errc::protocol,
                 fmt::format("a message for rank {}, which is not in this process", to)};
  return {};
}

Expected<void> Receiver::on_control(const Control& control) {
  if (control.kind == Control::ping) pings_++;
  if (control.kind != Control::rank_down) return {};
  if (!lives_there(control.rank))
    return Error{Errc::protocol, fmt::format("the departure of rank {}, which is not in that "
                                             "process",
                                             control.rank)};
  router_.rank_left(control.rank);
  return {};
}

bool Receiver::lives_there(Rank rank) const {
  const Placement& placement = router_.placement();
  return rank >= 0 && rank < placement.world_size() &&
         placement.process_of[static_cast<std::size_t>(rank)] == process_;
}

}  // namespace grapevine::tcp
