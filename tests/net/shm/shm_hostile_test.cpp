// What no process of the job does: it may end the connection or link that it came on, nothing
// else. Properties over seeds; a failure names the seed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "net/loss_reason.hpp"
#include "net/shm/shm_greeting.hpp"
#include "net/shm/shm_records.hpp"
#include "net/shm/shm_ring.hpp"
#include "tests/log_lines.hpp"
#include "tests/net/shm/shm_world.hpp"

namespace grapevine::conformance {
namespace shm_hostile_test {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kSeeds = 40;

std::string socket_name(const std::string& address) {
  return address.substr(address.rfind(':') + 1);
}

Bytes random_bytes(Rng& rng, std::size_t count) {
  Bytes bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  return bytes;
}

LinkIdentity identity(std::int32_t process, std::int32_t processes, const JobToken& token = kJob) {
  return {process, placement_digest(one_each(process, processes)), token};
}

// ---- unauthenticated connections

TEST(ShmHostile, UnauthenticatedConnectionsDisturbNoLink) {
  ShmWorld world(2, 1);
  auto a = attach(world.endpoint(0), 0);
  auto b = attach(world.endpoint(1), 1);
  std::vector<FileDescriptor> open;
  for (std::uint64_t seed = 0; seed < 4 * kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    for (const Rank victim : {0, 1}) {
      auto socket = shm::connect_to(socket_name(world.endpoint(victim).address()));
      ASSERT_TRUE(socket.ok());
      shm::ShmHello hello = shm::make_hello(identity(static_cast<std::int32_t>(rng() % 3), 2));
      Bytes bytes(sizeof hello);
      std::memcpy(bytes.data(), &hello, sizeof hello);
      if (rng() % 3 == 0) bytes = random_bytes(rng, 1 + rng() % shm::kLongestPacket);
      if (rng() % 3 == 0) bytes[rng() % bytes.size()] ^= std::byte{4};
      shm::send_packet(socket->get(), bytes.data(), bytes.size());
      // Without knowing the token, and with descriptors that nobody asked for.
      const Bytes proof = random_bytes(rng, sizeof(shm::ShmProof));
      shm::send_packet(socket->get(), proof.data(), proof.size(), {0, 0});
      if (rng() % 2 == 0) open.push_back(*std::move(socket));
    }
    world.endpoint(0).send(numbered(0, 1, static_cast<std::int32_t>(seed)));
    world.endpoint(1).send(numbered(1, 0, static_cast<std::int32_t>(seed)));
    ASSERT_TRUE(a->wait_messages(seed + 1));
    ASSERT_TRUE(b->wait_messages(seed + 1));
  }
  EXPECT_EQ(a->down_count(1) + b->down_count(0), 0);
}

TEST(ShmHostile, WithoutTheTokenNobodyTakesAPlace) {
  auto first = make_shm();
  auto second = make_shm();
  const std::vector<std::string> addresses = {first->address(), second->address()};
  std::vector<std::future<Expected<shm::LinkParts>>> unauthenticated;
  for (const JobToken& token : {JobToken{}, kOtherJob})
    unauthenticated.push_back(std::async(std::launch::async, [&, token] {
      return shm::dial(socket_name(addresses[0]), identity(1, 2, token), 0,
                       shm::Clock::now() + kHangDeadline, nullptr, false);
    }));
  std::this_thread::sleep_for(100ms);  // they greet before the job does
  auto dialling = std::async(std::launch::async, [&] {
    return second->connect(addresses, one_each(1, 2), kTimeout, {kJob, nullptr}).ok();
  });
  EXPECT_TRUE(first->connect(addresses, one_each(0, 2), kTimeout, {kJob, nullptr}).ok());
  EXPECT_TRUE(dialling.get());
  for (auto& connection : unauthenticated) {
    const auto refused = connection.get();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("another job"), std::string::npos)
        << refused.error().message;
  }
}

// Connections that have greeted before the run connects, when no greeting can be answered.
TEST(ShmHostile, BeforeTheStartTheOldestGiveWay) {
  constexpr std::size_t kMostOpen = 600;  // more than are held
  const LogLines log;
  auto transport = make_shm();
  const std::string name = socket_name(transport->address());
  auto process_1 = std::async(std::launch::async, [&] {
    return shm::dial(name, identity(1, 2), 0, shm::Clock::now() + kHangDeadline, nullptr, false);
  });
  std::vector<FileDescriptor> held;
  EXPECT_TRUE(eventually([&] {
    const auto is_refused = [](const FileDescriptor& s) { return shm::has_ended(s.get()); };
    if (held.size() == kMostOpen)
      held.erase(std::remove_if(held.begin() + 1, held.end(), is_refused), held.end());
    if (auto socket = shm::connect_to(name); socket && held.size() < kMostOpen) {
      const shm::ShmHello hello = shm::make_hello(identity(1, 2, kOtherJob));
      shm::send_packet(socket->get(), &hello, sizeof hello);
      held.push_back(*std::move(socket));
    }
    return !held.empty() && shm::has_ended(held.front().get());
  })) << held.size();
  EXPECT_TRUE(log.wait_for({"shm: dropped a connection", "it gave way"})) << log.text();
  EXPECT_TRUE(
      transport
          ->connect({transport->address(), "process 1"}, one_each(0, 2), kTimeout, {kJob, nullptr})
          .ok());
  EXPECT_TRUE(process_1.get().ok());
}

// What a connection sends after its greeting is read all the same: unread, it would wake the thread
// without end.
TEST(ShmHostile, BeforeTheStartAConnectionThatHasGreetedMayEnd) {
  const LogLines log;
  auto transport = make_shm();
  const std::string name = socket_name(transport->address());
  const auto greet = [&name] {
    auto socket = shm::connect_to(name);
    EXPECT_TRUE(socket.ok());
    const shm::ShmHello hello = shm::make_hello(identity(1, 2));
    EXPECT_TRUE(shm::send_packet(socket->get(), &hello, sizeof hello));
    return *std::move(socket);
  };
  greet();
  EXPECT_TRUE(log.wait_for({"shm: dropped a connection", "it closed the connection"}))
      << log.text();
  const FileDescriptor talks_on = greet();
  const std::byte more{};
  EXPECT_TRUE(shm::send_packet(talks_on.get(), &more, 1));
  EXPECT_TRUE(log.wait_for({"shm: dropped a connection", "its greeting is damaged"})) << log.text();
  EXPECT_TRUE(eventually([&] { return shm::has_ended(talks_on.get()); }));
  auto process_1 = std::async(std::launch::async, [&] {
    return shm::dial(name, identity(1, 2), 0, shm::Clock::now() + kHangDeadline, nullptr, false);
  });
  EXPECT_TRUE(
      transport
          ->connect({transport->address(), "process 1"}, one_each(0, 2), kTimeout, {kJob, nullptr})
          .ok());
  EXPECT_TRUE(process_1.get().ok());
}

// One that believes every proof and then gives none itself.
TEST(ShmHostile, AWrongProofIsRefused) {
  ShmWorld world(2, 1);
  auto socket = shm::connect_to(socket_name(world.endpoint(0).address()));
  ASSERT_TRUE(socket.ok());
  const shm::ShmHello hello = shm::make_hello(identity(1, 2));
  ASSERT_TRUE(shm::send_packet(socket->get(), &hello, sizeof hello));
  shm::Packet packet;
  const auto receive = [&] {
    return eventually(
        [&] { return shm::receive_packet(socket->get(), packet) == shm::Received::packet; });
  };
  ASSERT_TRUE(receive());
  ASSERT_TRUE(shm::read_hello(packet).ok());
  const auto ends = shm::make_ends();
  ASSERT_TRUE(ends.ok());
  const shm::ShmProof proof;
  ASSERT_TRUE(shm::send_packet(socket->get(), &proof, sizeof proof, ends->descriptors()));
  ASSERT_TRUE(receive());
  EXPECT_TRUE(packet.descriptors.empty());
  shm::Answer answer;
  ASSERT_EQ(packet.bytes.size(), sizeof answer);
  std::memcpy(&answer, packet.bytes.data(), sizeof answer);
  EXPECT_EQ(answer.refusal, Refusal::other_job);
}

// ---- A process of the job that behaves as no process does, once it has greeted

class WithPuppet {
 public:
  // `hook`: of rank 0's inbox.
  explicit WithPuppet(const RecordingInbox::Hook& hook = nullptr) {
    for (int p = 0; p < 2; ++p) transports_.push_back(make_shm());
    const std::vector<std::string> addresses = {transports_[0]->address(),
                                                transports_[1]->address(), "the puppet"};
    run_threads(3, [&](int p) {
      if (p < 2) {
        EXPECT_TRUE(
            transports_[p]->connect(addresses, one_each(p, 3), kTimeout, {kJob, nullptr}).ok());
        return;
      }
      for (int to = 0; to < 2; ++to) {
        auto dialled = shm::dial(socket_name(addresses[to]), identity(2, 3), to,
                                 shm::Clock::now() + kHangDeadline, nullptr, false);
        ASSERT_TRUE(dialled.ok()) << dialled.error().message;
        links_[to] = std::make_unique<shm::LinkParts>(*std::move(dialled));
      }
    });
    for (Rank r = 0; r < 2; ++r)
      inboxes_.push_back(attach(*transports_[r], r, r == 0 ? hook : RecordingInbox::Hook()));
    writer_ = std::make_unique<shm::RingWriter>(links_[0]->own.outbox);
  }

  shm::ShmOutbox& outbox() {
    return *reinterpret_cast<shm::ShmOutbox*>(links_[0]->own.outbox->data());
  }
  // The queue in which rank 0 sends to this process.
  shm::ShmOutbox& inbox_box() {
    return *reinterpret_cast<shm::ShmOutbox*>(links_[0]->inbox->data());
  }
  int socket() const { return links_[0]->socket.get(); }
  void bell() {
    const std::byte bell{};
    shm::send_packet(socket(), &bell, 1);
  }
  void send_record(shm::RecordKind kind, const Bytes& body) {
    const std::size_t bytes = shm::padded(sizeof(shm::RecordHeader) + body.size());
    const auto to = writer_->reserve(bytes);
    ASSERT_TRUE(to.ok() && *to != nullptr);
    if (!body.empty()) std::memcpy(*to + sizeof(shm::RecordHeader), body.data(), body.size());
    writer_->publish(kind, bytes);
    bell();
  }
  RecordingInbox& inbox(Rank rank) { return *inboxes_[static_cast<std::size_t>(rank)]; }
  RemoteTransport& transport(int p) { return *transports_[p]; }

  // Rank 2 is down at rank 0, once, and that is all that happened.
  void expect_only_it_is_lost(bool malformed = true) {
    ASSERT_TRUE(inbox(0).wait_down(2));
    if (malformed) {
      EXPECT_TRUE(is_malformed(inbox(0).down_reason(2))) << inbox(0).down_reason(2);
    }
    for (const Rank r : {0, 1}) transports_[r]->send(numbered(r, 1 - r, 0));
    for (const Rank r : {0, 1})
      ASSERT_TRUE(eventually([&] { return !inbox(r).messages_from(1 - r).empty(); }));
    EXPECT_EQ(inbox(0).down_count(2), 1);
    EXPECT_EQ(inbox(0).down_count(1) + inbox(1).down_count(0) + inbox(1).down_count(2), 0);
  }
  void hang_up() { links_[0]->socket.reset(); }

 private:
  std::unique_ptr<shm::LinkParts> links_[2];
  std::unique_ptr<shm::RingWriter> writer_;
  std::vector<std::shared_ptr<RecordingInbox>> inboxes_;
  std::vector<std::unique_ptr<RemoteTransport>> transports_;
};

void append(Bytes& bytes, const void* data, std::size_t count) {
  const auto* from = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), from, from + count);
  bytes.resize(shm::padded(bytes.size()));
}

// The body of a message with one tensor of `bytes` bytes, in the place that `part` says.
Bytes message(Rng& rng, Rank from, Rank to, std::size_t bytes, shm::TensorPart part,
              at::ScalarType dtype = at::kByte) {
  Envelope e = numbered(from, to, 0);
  const FrozenTensor data = random_bits(rng, bytes, dtype);
  std::get<Chunk>(e.payload).data = data;
  const EncodedHeader header = encode_header(e);
  const shm::MessageHead head{static_cast<std::uint32_t>(header.size()), 1};
  Bytes body;
  append(body, &head, sizeof head);
  append(body, header.data(), header.size());
  append(body, &part, sizeof part);
  if (part.where == shm::Where::inlined) append(body, data.raw(), data.nbytes());
  return body;
}

shm::TensorPart in(shm::Where where) {
  shm::TensorPart part;
  part.where = where;
  return part;
}

shm::TensorPart block(std::uint32_t segment, std::uint32_t slot, std::uint64_t offset) {
  shm::TensorPart part;
  part.where = shm::Where::block;
  part.segment = segment;
  part.slot = slot;
  part.offset = offset;
  return part;
}

TEST(ShmHostile, AProperPuppetIsHeard) {
  Rng rng(1);
  WithPuppet world;
  world.send_record(shm::RecordKind::message, message(rng, 2, 0, 100, in(shm::Where::inlined)));
  ASSERT_TRUE(world.inbox(0).wait_messages(1));
  world.send_record(shm::RecordKind::departure, {std::byte{2}, {}, {}, {}, {}, {}, {}, {}});
  world.expect_only_it_is_lost(false);
  EXPECT_EQ(world.inbox(0).messages_from(2).size(), 1u);
}

TEST(ShmHostile, DamagedRecordsEndTheirLinkOnly) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(mix_seed(seed, 1));
    WithPuppet world;
    shm::ShmOutbox& box = world.outbox();
    switch (seed % 4) {
      case 0: {  // noise, and a counter that fits it
        const Bytes noise = random_bytes(rng, 8 * (1 + rng() % 1000));
        std::memcpy(box.ring, noise.data(), noise.size());
        box.written = noise.size();
        break;
      }
      case 1:  // a counter that fits nothing
        box.written = rng();
        break;
      case 2: {  // a message with flipped bits
        Bytes body = message(rng, 2, 0, 200, in(shm::Where::inlined));
        for (std::uint64_t flips = 1 + rng() % 8; flips > 0; --flips)
          body[rng() % 120] ^= static_cast<std::byte>(1U << (rng() % 8));
        world.send_record(shm::RecordKind::message, body);
        break;
      }
      default: {  // a message that is cut off
        Bytes body = message(rng, 2, 0, 200, in(shm::Where::inlined));
        body.resize(rng() % (body.size() - 8));
        world.send_record(shm::RecordKind::message, body);
      }
    }
    world.bell();
    world.hang_up();  // what is taken for the beginning of a message ends here
    world.expect_only_it_is_lost(false);
    EXPECT_NE(world.inbox(0).down_reason(2), "");
  }
}

TEST(ShmHostile, RecordsThatNoProcessSendsEndTheLink) {
  Rng rng(3);
  using shm::RecordKind;
  const auto plain = in(shm::Where::inlined);
  const std::vector<std::pair<RecordKind, Bytes>> records = {
      {RecordKind::message, message(rng, 1, 0, 100, plain)},   // from another process
      {RecordKind::message, message(rng, 0, 2, 100, plain)},   // from the receiver itself
      {RecordKind::message, message(rng, 2, 1, 100, plain)},   // for another process
      {RecordKind::message, message(rng, 2, 3, 100, plain)},   // outside the world
      {RecordKind::message, message(rng, -1, 0, 100, plain)},  // "
      {RecordKind::message, message(rng, 2, 0, 100, in(shm::Where::nowhere))},
      {RecordKind::message, message(rng, 2, 0, 100, in(static_cast<shm::Where>(9)))},
      {RecordKind::message, message(rng, 2, 0, 100, block(0, 0, 0))},  // of no segment
      {RecordKind::message, {}},
      {RecordKind::departure, {std::byte{1}, {}, {}, {}, {}, {}, {}, {}}},  // of another process
      {RecordKind::departure, Bytes(8, std::byte{255})},
      {RecordKind::fragment, Bytes(64)},  // of nothing
      {static_cast<RecordKind>(99), Bytes(8)}};
  for (std::size_t i = 0; i < records.size(); ++i) {
    SCOPED_TRACE("record " + std::to_string(i));
    WithPuppet world;
    world.send_record(records[i].first, records[i].second);
    world.expect_only_it_is_lost();  // although nobody hung up
    EXPECT_TRUE(world.inbox(0).messages_from(2).empty());
  }
}

TEST(ShmHostile, FragmentsThatDoNotFitEndTheLink) {
  Rng rng(4);
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{101}, ~std::uint64_t{0}}) {
    WithPuppet world;
    world.send_record(shm::RecordKind::message, message(rng, 2, 0, 100, in(shm::Where::fragments)));
    Bytes fragment;
    append(fragment, &count, sizeof count);
    fragment.resize(400);
    world.send_record(shm::RecordKind::fragment, fragment);
    world.expect_only_it_is_lost();
  }
}

TEST(ShmHostile, BlocksOutsideOfTheirSegmentEndTheLink) {
  Rng rng(5);
  constexpr std::uint64_t kBytes = 64 << 10;
  const std::vector<shm::TensorPart> parts = {
      block(7, 0, 0),                       // another segment
      block(1, shm::kSlots, 0),             // no slot
      block(1, 0, 34),                      // no float lies there
      block(1, 0, kBytes - 64),             // ends behind it
      block(1, 0, kBytes),                  // "
      block(1, 0, ~std::uint64_t{0} - 63),  // wraps around
  };
  for (std::size_t i = 0; i <= parts.size(); ++i) {
    SCOPED_TRACE("place " + std::to_string(i));
    WithPuppet world;
    const auto memory = shm::SharedMemory::make(kBytes);
    ASSERT_TRUE(memory.ok());
    const shm::SegmentPacket packet{shm::SegmentPacket::kMagic, 1, kBytes};
    ASSERT_TRUE(
        shm::send_packet(world.socket(), &packet, sizeof packet, {(*memory)->descriptor()}));
    const bool fits = i == parts.size();
    world.send_record(
        shm::RecordKind::message,
        message(rng, 2, 0, 100, fits ? block(1, 0, kBytes - 128) : parts[i], at::kFloat));
    if (fits) {
      ASSERT_TRUE(world.inbox(0).wait_messages(1));
      continue;
    }
    world.expect_only_it_is_lost();
  }
}

// Memory that could vanish under the reader is not mapped at all.
TEST(ShmHostile, MemoryThatCouldShrinkIsRefused) {
  constexpr std::uint64_t kBytes = 64 << 10;
  const auto file = [](bool sealed, bool filled, std::uint64_t bytes) {
    FileDescriptor made(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(made.get(), static_cast<off_t>(bytes)), 0);
    if (filled) {
      EXPECT_EQ(::fallocate(made.get(), 0, 0, static_cast<off_t>(bytes)), 0);
    }
    if (sealed) {
      EXPECT_EQ(::fcntl(made.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    }
    return made;
  };
  std::vector<FileDescriptor> files;
  files.push_back(file(false, true, kBytes));
  files.push_back(file(true, false, kBytes));  // pages that no memory may be left for
  files.push_back(file(true, true, kBytes / 2));
  files.push_back(FileDescriptor(::open("/dev/null", O_RDWR | O_CLOEXEC)));
  for (std::size_t i = 0; i < files.size(); ++i) {
    SCOPED_TRACE("file " + std::to_string(i));
    WithPuppet world;
    const shm::SegmentPacket packet{shm::SegmentPacket::kMagic, 1, kBytes};
    ASSERT_TRUE(shm::send_packet(world.socket(), &packet, sizeof packet, {files[i].get()}));
    world.expect_only_it_is_lost();
  }
}

TEST(ShmHostile, ReturnsAndReceiptsOfNothingEndTheLink) {
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    WithPuppet world;
    shm::ShmOutbox& box = world.inbox_box();
    const auto send = [&] {
      Rng rng(6);
      Envelope e = numbered(0, 2, 0);
      std::get<Chunk>(e.payload).data = random_bits(rng, 100000, at::kByte);
      world.transport(0).send(std::move(e));
    };
    send();
    if (i == 0) box.returned = 1 << 20;
    if (i == 1) box.returns[0] = shm::kSlots;
    if (i == 2) box.returns[0] = 500;
    if (i == 1 || i == 2) box.returned = 1;
    if (i == 3) box.read = 1 << 30;
    send();
    world.expect_only_it_is_lost();
  }
}

// A socket that is closed with a bell unread reports that before what was sent through it.
TEST(ShmHostile, WhatWasSentBeforeAnEndWithAnUnreadBellArrives) {
  Rng rng(1);
  std::promise<void> entered, release;
  const auto released = release.get_future().share();
  WithPuppet world([&, first = true](const Envelope&) mutable {
    if (!std::exchange(first, false)) return;
    entered.set_value();
    released.wait();
  });
  world.send_record(shm::RecordKind::message, message(rng, 2, 0, 100, in(shm::Where::inlined)));
  entered.get_future().wait();
  world.inbox_box().asleep = 1;  // so that rank 0 rings
  world.transport(0).send(numbered(0, 2, 0));
  constexpr std::uint64_t kBytes = 64 << 10;
  const auto memory = shm::SharedMemory::make(kBytes);
  ASSERT_TRUE(memory.ok());
  const shm::SegmentPacket packet{shm::SegmentPacket::kMagic, 1, kBytes};
  ASSERT_TRUE(shm::send_packet(world.socket(), &packet, sizeof packet, {(*memory)->descriptor()}));
  world.send_record(shm::RecordKind::message, message(rng, 2, 0, 100, block(1, 0, 0)));
  world.send_record(shm::RecordKind::message, message(rng, 2, 0, 100, in(shm::Where::inlined)));
  world.send_record(shm::RecordKind::goodbye, Bytes(8));
  world.hang_up();
  release.set_value();
  ASSERT_TRUE(world.inbox(0).wait_down(2));
  EXPECT_EQ(world.inbox(0).messages_from(2).size(), 3u);
  EXPECT_EQ(world.inbox(0).down_reason(2), "");
}

}  // namespace shm_hostile_test
}  // namespace grapevine::conformance
