// Bytes that no process of the job sends: they may end the connection that they came on, nothing
// else. Properties over seeds; a failure names the seed.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <string>

#include "net/loss_reason.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tcp_frames.hpp"
#include "tests/log_lines.hpp"
#include "tests/net/tcp/tcp_world.hpp"

namespace grapevine::conformance {
namespace tcp_hostile_test {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kSeeds = 60;

tcp::Clock::time_point deadline() { return tcp::Clock::now() + kHangDeadline; }

// The other side may have hung up: that is no failure here.
void write_all(int descriptor, const Bytes& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t count = ::send(descriptor, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN) return;
    at += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  }
}

Bytes random_bytes(Rng& rng, std::size_t count) {
  Bytes bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  return bytes;
}

void flip_bits(Rng& rng, Bytes& bytes, std::size_t among) {
  for (std::uint64_t flips = 1 + rng() % 8; flips > 0; --flips)
    bytes[rng() % among] ^= static_cast<std::byte>(1U << (rng() % 8));
}

// ---- unauthenticated connections

// A connection that greets nobody.
FileDescriptor plain_connection(const std::string& address) {
  const auto parts = tcp::split_address(address);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(parts->second)));
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return socket;
}

Bytes unauthenticated_bytes(Rng& rng) {
  // Its proof is of no nonce that the listener has sent.
  Bytes bytes = tcp::encode_hello(tcp::make_hello());
  const LinkIdentity claimed{static_cast<std::int32_t>(rng() % 3), placement_digest(one_each(0, 2)),
                             kJob};
  const Bytes proof = tcp::encode_proof(tcp::proof_of_dialler(claimed, 0, {}));
  bytes.insert(bytes.end(), proof.begin(), proof.end());
  switch (rng() % 4) {
    case 0:
      return random_bytes(rng, rng() % 3000);
    case 1:
      bytes.resize(rng() % bytes.size());
      return bytes;
    case 2:
      flip_bits(rng, bytes, bytes.size());
      return bytes;
    default:  // a second process 0 or 1, or one that there is not
      return bytes;
  }
}

TEST(TcpHostile, UnauthenticatedConnectionsDisturbNoLink) {
  const LogLines log;
  TcpWorld world(2, 1);
  auto a = attach(world.endpoint(0), 0);
  auto b = attach(world.endpoint(1), 1);
  std::vector<FileDescriptor> open;
  for (std::uint64_t seed = 0; seed < 5 * kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    for (const Rank victim : {0, 1}) {
      open.push_back(plain_connection(world.endpoint(victim).address()));
      write_all(open.back().get(), unauthenticated_bytes(rng));
      if (rng() % 2 == 0) open.pop_back();  // others stay and say nothing more
    }
    world.endpoint(0).send(numbered(0, 1, static_cast<std::int32_t>(seed)));
    world.endpoint(1).send(numbered(1, 0, static_cast<std::int32_t>(seed)));
    ASSERT_TRUE(a->wait_messages(seed + 1));
    ASSERT_TRUE(b->wait_messages(seed + 1));
  }
  EXPECT_EQ(a->down_count(1) + b->down_count(0), 0);
  EXPECT_TRUE(log.wait_for({"tcp: dropped a connection from 127.0.0.1"})) << log.text();
}

TEST(TcpHostile, UnauthenticatedConnectionsDoNotDelayTheStart) {
  auto first = make();
  auto second = make();
  const std::vector<std::string> addresses = {first->address(), second->address()};
  std::vector<FileDescriptor> open;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Rng rng(seed);
    open.push_back(plain_connection(addresses[seed % 2]));
    write_all(open.back().get(), random_bytes(rng, rng() % 100));
  }
  auto dialling = std::async(std::launch::async, [&] {
    return second->connect(addresses, one_each(1, 2), kTimeout, {kJob, nullptr}).ok();
  });
  EXPECT_TRUE(first->connect(addresses, one_each(0, 2), kTimeout, {kJob, nullptr}).ok());
  EXPECT_TRUE(dialling.get());
}

// An unauthenticated process may know versions, sizes and indexes, but not the job's token.
TEST(TcpHostile, WithoutTheTokenNobodyTakesAPlace) {
  const LogLines log;
  auto first = make();
  auto second = make();
  auto third = make();
  const std::vector<std::string> addresses = {first->address(), second->address(),
                                              third->address()};
  const auto identity = [](std::int32_t process, const JobToken& token) {
    return LinkIdentity{process, placement_digest(one_each(0, 3)), token};
  };
  std::vector<std::future<Expected<std::unique_ptr<tcp::Stream>>>> unauthenticated;
  for (const JobToken& token : {JobToken{}, kOtherJob})
    for (std::int32_t process = 0; process < 3; ++process)
      unauthenticated.push_back(std::async(std::launch::async, [&, process, token] {
        return tcp::dial(addresses[1], identity(process, token), 1, deadline());
      }));
  // They greet before the job does.
  std::this_thread::sleep_for(200ms);
  std::vector<Expected<void>> connected(3);
  RemoteTransport* const transports[] = {first.get(), second.get(), third.get()};
  run_threads(3, [&](int p) {
    connected[p] = transports[p]->connect(addresses, one_each(p, 3), kTimeout, {kJob, nullptr});
  });
  for (const Expected<void>& each : connected) EXPECT_TRUE(each.ok()) << each.error().message;
  for (auto& connection : unauthenticated) {
    const auto refused = connection.get();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("another job"), std::string::npos)
        << refused.error().message;
  }
  EXPECT_TRUE(log.wait_for({"tcp: dropped a connection from 127.0.0.1", "another job"}))
      << log.text();
}

// Only processes of higher index dial: one of lower index that is dialled itself would then have
// two connections.
TEST(TcpHostile, AProcessOfLowerIndexIsNotLetIn) {
  auto first = make();
  auto second = make();
  const std::vector<std::string> addresses = {first->address(), second->address()};
  auto caller = std::async(std::launch::async, [&] {
    const LinkIdentity own{0, placement_digest(one_each(0, 2)), kJob};
    return tcp::dial(addresses[1], own, 1, deadline());
  });
  std::this_thread::sleep_for(200ms);
  auto dialling = std::async(std::launch::async, [&] {
    return second->connect(addresses, one_each(1, 2), kTimeout, {kJob, nullptr}).ok();
  });
  const auto refused = caller.get();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("lower index"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(first->connect(addresses, one_each(0, 2), kTimeout, {kJob, nullptr}).ok());
  EXPECT_TRUE(dialling.get());
}

// Process 2 has a wrong list of addresses, and dials process 1 in the place of process 0: that is
// its own error, and no loss of a process.
TEST(TcpHostile, AProcessThatMeansAnotherOneIsNotLetIn) {
  const LogLines log;
  std::vector<std::unique_ptr<RemoteTransport>> transports;
  std::vector<std::string> addresses;
  for (int p = 0; p < 3; ++p) {
    transports.push_back(make());
    addresses.push_back(transports.back()->address());
  }
  auto mistaken = std::async(std::launch::async, [&] {
    const LinkIdentity own{2, placement_digest(one_each(2, 3)), kJob};
    return tcp::dial(addresses[1], own, 0, deadline());
  });
  std::this_thread::sleep_for(200ms);
  std::vector<Expected<void>> connected(3);
  run_threads(3, [&](int p) {
    if (p == 2) {  // the right list, once the wrong one has failed
      const auto refused = mistaken.get();
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, Errc::protocol);
      EXPECT_NE(refused.error().message.find("process 1 answered there: check the list"),
                std::string::npos)
          << refused.error().message;
      // Of a run that has begun, the process that is meant may have ended: its loss becomes known.
      const LinkIdentity own{2, placement_digest(one_each(2, 3)), kJob};
      const auto joining = tcp::dial(addresses[1], own, 0, tcp::Clock::now() + 1s, nullptr, true);
      ASSERT_FALSE(joining.ok());
      EXPECT_EQ(joining.error().code, Errc::timeout) << joining.error().message;
    }
    const auto i = static_cast<std::size_t>(p);
    connected[i] = transports[i]->connect(addresses, one_each(p, 3), kTimeout, {kJob, nullptr});
  });
  for (const Expected<void>& each : connected) EXPECT_TRUE(each.ok()) << each.error().message;
  EXPECT_TRUE(log.wait_for({"process 2 dialled process 0 and reached process 1"})) << log.text();
}

// ---- A process of the job that has lost its mind: it greets properly, then sends what a test says

class WithPuppet {
 public:
  explicit WithPuppet(const TcpOptions& options = loopback()) {
    for (int p = 0; p < 2; ++p) transports_.push_back(make(options));
    const std::vector<std::string> addresses = {transports_[0]->address(),
                                                transports_[1]->address(), "the puppet"};
    const LinkIdentity own{2, placement_digest(one_each(2, 3)), kJob};
    run_threads(3, [&](int p) {
      if (p < 2) {
        EXPECT_TRUE(
            transports_[p]->connect(addresses, one_each(p, 3), kTimeout, {kJob, nullptr}).ok());
        return;
      }
      for (int to = 0; to < 2; ++to) {
        auto dialled = tcp::dial(addresses[to], own, to, deadline());
        ASSERT_TRUE(dialled.ok()) << dialled.error().message;
        streams_[to] = std::move(*dialled);
      }
    });
    for (Rank r = 0; r < 2; ++r) inboxes_.push_back(attach(*transports_[r], r));
  }

  void send(const Bytes& bytes) { write_all(streams_[0]->descriptor(), bytes); }
  void hang_up(int from) { streams_[from].reset(); }
  RecordingInbox& inbox(Rank rank) { return *inboxes_[static_cast<std::size_t>(rank)]; }

  // Rank 2 is down at rank 0, once, and that is all that happened.
  void expect_only_it_is_lost() {
    ASSERT_TRUE(inbox(0).wait_down(2));
    for (const Rank r : {0, 1}) transports_[r]->send(numbered(r, 1 - r, 0));
    for (const Rank r : {0, 1})
      ASSERT_TRUE(eventually([&] { return !inbox(r).messages_from(1 - r).empty(); }));
    EXPECT_EQ(inbox(0).down_count(2), 1);
    EXPECT_EQ(inbox(0).down_count(1), 0);
    EXPECT_EQ(inbox(1).down_count(0), 0);
    EXPECT_EQ(inbox(1).down_count(2), 0);
    hang_up(1);
  }

 private:
  std::vector<std::shared_ptr<RecordingInbox>> inboxes_;
  std::vector<std::unique_ptr<RemoteTransport>> transports_;
  std::unique_ptr<tcp::Stream> streams_[2];
};

Bytes message(Rng& rng, Rank from, Rank to, std::size_t payload) {
  Envelope e = numbered(from, to, 0);
  std::get<Chunk>(e.payload).data = random_bits(rng, payload, at::kByte);
  return encode(e);
}

TEST(TcpHostile, DamagedFramesEndTheirConnectionOnly) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(mix_seed(seed, 1));
    WithPuppet world;
    Bytes bytes = message(rng, 2, 0, rng() % 40000);
    switch (seed % 4) {
      case 0:
        bytes = random_bytes(rng, 1 + rng() % 3000);
        break;
      case 1:
        bytes.resize(rng() % bytes.size());
        break;
      case 2:
        flip_bits(rng, bytes, std::min<std::size_t>(bytes.size(), 120));
        break;
      default: {  // good ones around a bad one
        Bytes more = message(rng, 2, 0, 100);
        bytes.insert(bytes.end(), more.begin(), more.end());
        const Bytes junk = random_bytes(rng, 200);
        bytes.insert(bytes.end(), junk.begin(), junk.end());
      }
    }
    world.send(bytes);
    world.hang_up(0);  // what is cut off, or has become a longer message, ends here
    world.expect_only_it_is_lost();
    EXPECT_NE(world.inbox(0).down_reason(2), "");
  }
}

TEST(TcpHostile, RanksThatDoNotLiveThereEndTheConnection) {
  Rng rng(3);
  const std::vector<Bytes> frames = {
      message(rng, 1, 0, 100),                                      // from somebody else
      message(rng, 0, 2, 100),                                      // from the receiver itself
      message(rng, 2, 1, 100),                                      // for somebody else
      message(rng, 2, 3, 100),                                      // outside the world
      message(rng, -1, 0, 100),                                     // "
      tcp::encode_control({tcp::Control::rank_down, 1}),            // somebody else's departure
      tcp::encode_control({tcp::Control::rank_down, -5}),           // nobody's
      tcp::encode_control({static_cast<tcp::Control::Kind>(9), 0})  // of no kind
  };
  for (std::size_t i = 0; i < frames.size(); ++i) {
    SCOPED_TRACE("frame " + std::to_string(i));
    WithPuppet world;
    world.send(frames[i]);
    world.expect_only_it_is_lost();  // although nobody hung up
    EXPECT_TRUE(world.inbox(0).messages_from(2).empty());
    EXPECT_TRUE(is_malformed(world.inbox(0).down_reason(2))) << world.inbox(0).down_reason(2);
  }
}

TEST(TcpHostile, LengthsBeyondTheLimitsAreRefusedBeforeAnythingIsAllocated) {
  TcpOptions options = loopback();
  options.limits.max_payload_bytes = 1 << 20;
  Rng rng(4);
  Bytes bytes = message(rng, 2, 0, 1 << 10);
  const std::size_t header = bytes.size() - (1 << 10);
  for (const std::uint64_t claimed :
       {std::uint64_t{1} << 33, std::uint64_t{1} << 62, std::uint64_t{1} << 63,
        std::numeric_limits<std::uint64_t>::max()}) {
    SCOPED_TRACE(claimed);
    for (const std::size_t field : {header - 16, header - 8})  // the tensor's bytes, its only size
      std::memcpy(bytes.data() + field, &claimed, sizeof claimed);
    const LogLines log;
    WithPuppet world(options);
    world.send(bytes);
    world.expect_only_it_is_lost();
    EXPECT_EQ(log.count({"tcp: the link to", "is lost", world.inbox(0).down_reason(2)}), 1U)
        << log.text();
  }
}

TEST(TcpHostile, ControlFramesBetweenMessagesAreFine) {
  Rng rng(5);
  WithPuppet world;
  Bytes bytes;
  const auto append = [&](const Bytes& more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  for (int i = 0; i < 3; ++i) {
    append(message(rng, 2, 0, 5000));
    append(tcp::encode_control({tcp::Control::ping, 0}));
    append(tcp::encode_control({tcp::Control::pong, 0}));
  }
  append(tcp::encode_control({tcp::Control::rank_down, 2}));
  append(message(rng, 2, 0, 1));                    // after its own departure: nobody hears it
  for (const std::byte b : bytes) world.send({b});  // in the smallest pieces
  ASSERT_TRUE(world.inbox(0).wait_down(2));
  world.hang_up(0);
  world.expect_only_it_is_lost();
  EXPECT_EQ(world.inbox(0).messages_from(2).size(), 3u);
}

}  // namespace tcp_hostile_test
}  // namespace grapevine::conformance
