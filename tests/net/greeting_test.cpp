// A greeting and a UCX address have one encoding each: damage to any byte is noticed, or is another
// greeting's byte.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "messages/codec.hpp"
#include "net/receive_pool.hpp"
#include "net/tcp/tcp_frames.hpp"
#include "net/tcp/tcp_greeting.hpp"
#include "net/ucx/ucx_wire.hpp"

namespace grapevine {
namespace greeting_test {

// The number of damaged copies of `sent` that are refused.
template <class Decode, class Encode>
int refused_of_damaged(const std::vector<std::byte>& sent, Decode decode, Encode encode) {
  EXPECT_TRUE(decode(sent.data()).ok());
  int refused = 0;
  for (std::size_t at = 0; at < sent.size(); ++at)
    for (const std::byte flip : {std::byte{1}, std::byte{0x80}}) {
      std::vector<std::byte> bytes = sent;
      bytes[at] ^= flip;
      const auto decoded = decode(bytes.data());
      refused += !decoded;
      if (decoded) {
        EXPECT_EQ(encode(*decoded), bytes) << "byte " << at;
      }
    }
  return refused;
}

TEST(TcpGreeting, WhatDecodesEncodesToTheSameBytes) {
  const std::vector<std::byte> hello = tcp::encode_hello(tcp::make_hello());
  ASSERT_EQ(hello.size(), tcp::kHelloBytes);
  constexpr int kMagicVersionsAndZeros = 16;
  EXPECT_EQ(refused_of_damaged(hello, tcp::decode_hello, tcp::encode_hello),
            2 * kMagicVersionsAndZeros);
  const std::vector<std::byte> proof =
      tcp::encode_proof({3, 1, Refusal::too_late, 0xfedcba9876543210ULL, std::string(64, 'a')});
  ASSERT_EQ(proof.size(), tcp::kProofBytes);
  constexpr int kSignsOfProcesses = 2;
  EXPECT_EQ(refused_of_damaged(proof, tcp::decode_proof, tcp::encode_proof), kSignsOfProcesses);
}

// Each changes one thing of a connection or of an end.
TEST(TcpGreeting, AProofIsOfOneConnectionAndOneEnd) {
  const JobToken token = {std::byte{1}}, other_token = {std::byte{2}};
  const tcp::Nonces nonces{tcp::make_hello().nonce, tcp::make_hello().nonce};
  const tcp::Nonces new_dialler{tcp::make_hello().nonce, nonces.listener};
  const tcp::Nonces new_listener{nonces.dialler, tcp::make_hello().nonce};
  const tcp::Nonces exchanged{nonces.listener, nonces.dialler};
  const tcp::Proof dialler = tcp::proof_of_dialler({2, 7, token}, 1, nonces);
  const tcp::Proof listener = tcp::proof_of_listener({1, 7, token}, Refusal::none, nonces, dialler);
  EXPECT_TRUE(tcp::is_right_dialler(dialler, token, nonces));
  EXPECT_TRUE(tcp::is_right_listener(listener, token, nonces, dialler));
  EXPECT_FALSE(tcp::is_right_dialler(dialler, other_token, nonces));
  EXPECT_FALSE(tcp::is_right_listener(listener, other_token, nonces, dialler));
  for (const tcp::Nonces& other : {new_dialler, new_listener, exchanged}) {
    EXPECT_FALSE(tcp::is_right_dialler(dialler, token, other));
    EXPECT_FALSE(tcp::is_right_listener(listener, token, other, dialler));
  }
  EXPECT_FALSE(tcp::is_right_dialler(listener, token, nonces)) << "it is of the other end";
  EXPECT_FALSE(tcp::is_right_listener(dialler, token, nonces, dialler));
  EXPECT_FALSE(tcp::is_right_listener(listener, token, nonces,
                                      tcp::proof_of_dialler({3, 7, token}, 1, nonces)))
      << "it answers another process";
  for (const auto& damage : std::vector<std::function<void(tcp::Proof&)>>{
           [](tcp::Proof& p) { p.process += 1; }, [](tcp::Proof& p) { p.to += 1; },
           [](tcp::Proof& p) { p.placement += 1; },
           [](tcp::Proof& p) { p.refusal = Refusal::too_late; },
           [](tcp::Proof& p) { p.mac.clear(); }, [](tcp::Proof& p) { p.mac.back() ^= 1; }}) {
    tcp::Proof damaged = dialler;
    damage(damaged);
    EXPECT_FALSE(tcp::is_right_dialler(damaged, token, nonces));
    damaged = listener;
    damage(damaged);
    EXPECT_FALSE(tcp::is_right_listener(damaged, token, nonces, dialler));
  }
}

TEST(UcxAddress, EveryDamagedByteIsNoticed) {
  const std::string sent = ucx::pack_address({0x1122334455667788ULL, 4711, "any address", "net"});
  const auto address = ucx::unpack_address(sent);
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->any, "any address");
  EXPECT_EQ(address->network, "net");
  EXPECT_EQ(address->pid, 4711);
  for (std::size_t at = 0; at < sent.size(); ++at) {
    std::string bytes = sent;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    EXPECT_FALSE(ucx::unpack_address(bytes).ok()) << "byte " << at;
  }
  for (std::size_t size = 0; size < sent.size(); ++size)
    EXPECT_FALSE(ucx::unpack_address(sent.substr(0, size)).ok()) << size << " bytes";
  EXPECT_FALSE(ucx::unpack_address(sent + "x").ok());
}

TEST(UcxPrefix, OnlyItsKindsAreRead) {
  for (int kind = -1; kind <= 9; ++kind) {
    ucx::Prefix prefix;
    prefix.kind = static_cast<ucx::Kind>(kind);
    const auto read = ucx::read_prefix(&prefix, sizeof prefix);
    EXPECT_EQ(read.ok(), kind >= 1 && kind <= 6) << kind;
  }
  const ucx::Prefix prefix;
  EXPECT_FALSE(ucx::read_prefix(&prefix, sizeof prefix - 1).ok());
}

// ---- frames whose tensors are empty, one after the other ----

struct Sink : tcp::FrameSink {
  Expected<void> admit(Rank, Rank) override { return {}; }
  void on_message(Envelope envelope) override { messages.push_back(std::move(envelope)); }
  Expected<void> on_control(const tcp::Control& control) override {
    controls.push_back(control.kind);
    return {};
  }
  std::vector<Envelope> messages;
  std::vector<tcp::Control::Kind> controls;
};

FrozenTensor floats(std::int64_t count) {
  return FrozenTensor::freeze(at::arange(count, at::kFloat));
}

TEST(TcpFrames, EmptyTensorsAnywhereAndPiecesOfAnySize) {
  const std::vector<PackedChunk> chunks = {
      {1, 0, 0, {{}, floats(5), {}}},       {2, 0, 0, {floats(0), floats(0), floats(3)}},
      {3, 0, 0, {{}, {}, floats(7)}},       {4, 0, 0, {{}, {}, {}}},
      {5, 0, 0, {floats(4), {}, {}}},       {6, 0, 0, {floats(0), {}, floats(0)}},
      {7, 0, 0, {{}, floats(0), floats(2)}}};
  std::vector<std::byte> stream;
  for (const PackedChunk& chunk : chunks) {
    Envelope envelope;
    envelope.payload = chunk;
    const auto bytes = encode(envelope);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    const auto ping = tcp::encode_control({tcp::Control::ping, 0});
    stream.insert(stream.end(), ping.begin(), ping.end());
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{64}, stream.size()}) {
    SCOPED_TRACE(piece);
    Sink sink;
    ReceivePool pool(0);
    tcp::FrameReader reader(CodecLimits(), pool);
    for (std::size_t at = 0; at < stream.size(); at += piece)
      ASSERT_TRUE(
          reader.consume(stream.data() + at, std::min(piece, stream.size() - at), sink).ok());
    ASSERT_EQ(sink.messages.size(), chunks.size());
    EXPECT_EQ(sink.controls.size(), chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      Envelope sent;
      sent.payload = chunks[i];
      EXPECT_EQ(encode(sink.messages[i]), encode(sent)) << "message " << i;
    }
  }
}

TEST(TcpFrames, OtherKindsOfControlEndTheConnection) {
  for (std::int32_t kind = -1; kind <= 6; ++kind) {
    const auto bytes = tcp::encode_control({static_cast<tcp::Control::Kind>(kind), 0});
    Sink sink;
    ReceivePool pool(0);
    tcp::FrameReader reader(CodecLimits(), pool);
    EXPECT_EQ(reader.consume(bytes.data(), bytes.size(), sink).ok(), kind >= 1 && kind <= 3)
        << kind;
  }
}

// ---- memory ----

DecodedHeader header_of(std::int64_t count) {
  DecodedHeader header;
  header.tensors.push_back(
      {true, at::kFloat, {count}, static_cast<std::uint64_t>(count) * sizeof(float)});
  return header;
}

// What is taken from the pool no longer counts as kept, and comes back as often as it is used.
TEST(ReceivePool, GivesItsMemoryAgainAndAgain) {
  constexpr std::int64_t kCount = 1 << 20;
  ReceivePool pool(kCount * sizeof(float) * 2);
  const void* memory = pool.allocate(header_of(kCount))[0].data_ptr();
  for (int i = 0; i < 20; ++i) {
    // Takes the place of what the pool may have given back to the system.
    const at::Tensor other = at::empty({kCount}, at::kFloat);
    ASSERT_EQ(pool.allocate(header_of(kCount))[0].data_ptr(), memory) << "use " << i;
  }
}

// The system gives the memory to the next one that asks for as much.
TEST(ReceivePool, KeepsNothingWhereItMayKeepNothing) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps freed memory for a while";
#endif
  constexpr std::int64_t kCount = 1 << 20;
  int given_back = 0;
  for (int i = 0; i < 20; ++i) {
    ReceivePool pool(0);
    const void* memory = pool.allocate(header_of(kCount))[0].data_ptr();
    const at::Tensor other = at::empty({kCount}, at::kFloat);
    given_back += other.data_ptr() == memory;
  }
  EXPECT_GT(given_back, 0);
}

// A block of up to a quarter more serves; a far larger one is kept for what needs it.
TEST(ReceivePool, SpendsNoLargeBlockOnASmallTensor) {
  constexpr std::int64_t kCount = 1 << 20;
  ReceivePool pool(std::uint64_t{1} << 30);
  const void* large = pool.allocate(header_of(kCount))[0].data_ptr();
  EXPECT_NE(pool.allocate(header_of(kCount / 2))[0].data_ptr(), large);
  EXPECT_EQ(pool.allocate(header_of(kCount * 9 / 10))[0].data_ptr(), large);
  EXPECT_EQ(pool.allocate(header_of(kCount))[0].data_ptr(), large);
  EXPECT_NE(pool.allocate(header_of(kCount + 4096))[0].data_ptr(), large);
}

}  // namespace greeting_test
}  // namespace grapevine
