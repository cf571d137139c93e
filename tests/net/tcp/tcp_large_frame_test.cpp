// A message of more than 2^32 bytes through the two ends of a connection, without its bytes: the
// stream in the middle moves positions, and copies a few bytes around the limits of 32 bits. The
// memory of both tensors is reserved and, but for those bytes, never touched.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "messages/codec.hpp"
#include "messages/random.hpp"
#include "net/receive_pool.hpp"
#include "net/tcp/tcp_frames.hpp"
#include "net/tcp/tcp_outbox.hpp"

namespace grapevine {
namespace tcp_large_frame_test {

constexpr std::int64_t kLimit = std::int64_t{1} << 32;
constexpr std::int64_t kBytes = kLimit + (std::int64_t{1} << 30) + 3;
const std::vector<std::int64_t> kMarks = {
    0,         (std::int64_t{1} << 31) - 1, std::int64_t{1} << 31, kLimit - 1, kLimit, kLimit + 1,
    kBytes - 1};

// Takes pieces of random sizes, and remembers where they lie.
class PositionStream final : public tcp::Stream {
 public:
  explicit PositionStream(std::uint64_t seed) : Stream(FileDescriptor()), rng_(seed) {}

  tcp::Moved handshake(bool& /*wants_write*/) override { return {}; }
  tcp::Moved read(const iovec* /*parts*/, std::size_t /*count*/) override { return {}; }
  tcp::Moved write(const iovec* parts, std::size_t count) override {
    std::size_t left = 1 + rng_() % ((std::size_t{1} << 31) - 4096);  // as the system at most
    tcp::Moved moved;
    for (std::size_t i = 0; i < count && left > 0; ++i) {
      const std::size_t taken = std::min(left, parts[i].iov_len);
      if (taken > 0) pieces.push_back({parts[i].iov_base, taken});
      moved.bytes += taken, left -= taken;
      if (taken < parts[i].iov_len) moved.blocked = true;
    }
    return moved;
  }
  void finish_writing() override {}

  std::deque<iovec> pieces;

 private:
  Rng rng_;
};

class NoLoop final : public tcp::OutboxLoop {
 public:
  void pump_when_writable() override {}
  void on_broken(const std::string& why) override { ADD_FAILURE() << why; }
};

class OneMessage final : public tcp::FrameSink {
 public:
  Expected<void> admit(Rank /*from*/, Rank /*to*/) override { return {}; }
  void on_message(Envelope envelope) override { received.push_back(std::move(envelope)); }
  Expected<void> on_control(const tcp::Control& /*control*/) override { return {}; }

  std::vector<Envelope> received;
};

// Reserved memory; undefined where the system refuses that much.
at::Tensor reserved() {
  try {
    return at::empty({kBytes}, at::kByte);
  } catch (const std::exception&) {
    return {};
  }
}

unsigned char mark_at(std::size_t i) { return static_cast<unsigned char>(17 * (i + 1)); }

// Gives the reader what the pieces hold. `done`: bytes of the payload so far.
void deliver(std::deque<iovec>& pieces, tcp::FrameReader& reader, tcp::FrameSink& sink,
             std::int64_t& done) {
  for (; !pieces.empty(); pieces.pop_front()) {
    auto [base, left] = pieces.front();
    const auto* from = static_cast<const unsigned char*>(base);
    while (left > 0) {
      iovec room{};
      if (reader.payload_room(&room, 1) == 0) {
        ASSERT_LT(left, std::size_t{kMaxHeaderBytes});  // the header, in memory of its own
        ASSERT_TRUE(reader.consume(reinterpret_cast<const std::byte*>(from), left, sink).ok());
        break;
      }
      const std::size_t count = std::min(left, room.iov_len);
      for (const std::int64_t mark : kMarks)
        if (mark >= done && mark < done + static_cast<std::int64_t>(count))
          static_cast<unsigned char*>(room.iov_base)[mark - done] = from[mark - done];
      ASSERT_TRUE(reader.payload_filled(count, sink).ok());
      done += static_cast<std::int64_t>(count);
      from += count, left -= count;
    }
  }
}

TEST(TcpLargeFrame, PositionsBeyond32BitsAreRight) {
  at::Tensor tensor = reserved();
  if (!tensor.defined() || !reserved().defined())
    GTEST_SKIP() << "the system reserves no " << 2 * kBytes << " bytes";
  for (std::size_t i = 0; i < kMarks.size(); ++i)
    tensor.data_ptr<std::uint8_t>()[kMarks[i]] = mark_at(i);
  Envelope envelope;
  envelope.from = 0, envelope.to = 1;
  StateChunk chunk;
  chunk.transfer = 3, chunk.offset = 5 * kLimit, chunk.total = 7 * kLimit;
  chunk.data = FrozenTensor::freeze(std::move(tensor));
  envelope.payload = chunk;
  const EncodedHeader header = encode_header(envelope);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto stream = std::make_shared<PositionStream>(seed);
    NoLoop loop;
    tcp::Outbox outbox(stream, loop);
    ReceivePool pool(0);
    tcp::FrameReader reader({}, pool);
    OneMessage sink;
    std::int64_t done = 0;
    const auto* first = reinterpret_cast<const std::byte*>(header.data());
    outbox.add({{first, first + header.size()}, {chunk.data}});
    outbox.pump_all();
    for (deliver(stream->pieces, reader, sink, done); !outbox.is_sent();
         deliver(stream->pieces, reader, sink, done))
      outbox.resume();
    EXPECT_EQ(done, kBytes);
    ASSERT_EQ(sink.received.size(), 1U);
    const auto& received = std::get<StateChunk>(sink.received.front().payload);
    EXPECT_EQ(received.offset, chunk.offset);
    EXPECT_EQ(received.total, chunk.total);
    ASSERT_EQ(static_cast<std::int64_t>(received.data.nbytes()), kBytes);
    const auto* bytes = static_cast<const unsigned char*>(received.data.raw());
    for (std::size_t i = 0; i < kMarks.size(); ++i)
      EXPECT_EQ(bytes[kMarks[i]], mark_at(i)) << "byte " << kMarks[i];
  }
}

}  // namespace tcp_large_frame_test
}  // namespace grapevine
