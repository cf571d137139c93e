// Silent connections of a listener: none stays longer than it may, and only so many at a time.
#include "actors/cluster/secure/silent_connections.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "messages/random.hpp"
#include "net/file_descriptor.hpp"
#include "tests/log_lines.hpp"

namespace grapevine {
namespace silent_connections_test {

using std::chrono::milliseconds;
using Time = SilentConnections::Time;

constexpr std::size_t kMost = 5;
constexpr milliseconds kLongest{10'000};

struct Pair {
  FileDescriptor listener, other;
  Time until;
};

Pair make_pair_until(Time until) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1]), until};
}

bool is_ended(const Pair& pair) {
  char byte = 0;
  const ssize_t got = ::recv(pair.other.get(), &byte, 1, MSG_DONTWAIT);
  EXPECT_TRUE(got == 0 || errno == EAGAIN);
  return got == 0;
}

TEST(SilentConnections, EndThoseWhoseTimeIsOverAndNoOthers) {
  const LogLines log;
  int displaced = 0, ended = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    SilentConnections connections(std::make_shared<LogLimits>(), {kMost, kLongest});
    std::map<std::int64_t, Pair> open;
    Time now{};
    for (int step = 0; step < 60; ++step) {
      now += milliseconds(rng() % 3000);
      if (rng() % 4 == 0 &&
          !open.empty()) {  // it has sent a message, or the listener has seen its end
        connections.remove(open.begin()->first);
        open.erase(open.begin());
      } else if (rng() % 2 == 0) {
        connections.make_room(now);
        const auto waits = [now](const auto& entry) { return entry.second.until > now; };
        if (std::count_if(open.begin(), open.end(), waits) >= std::ptrdiff_t{kMost}) {
          std::find_if(open.begin(), open.end(), waits)->second.until = now;  // the oldest goes
          ++displaced;
        }
        Pair pair = make_pair_until(now + kLongest);
        const std::int64_t number = connections.add(pair.listener.get(), "it", now);
        EXPECT_TRUE(open.emplace(number, std::move(pair)).second) << "a number is used twice";
      } else {
        connections.end_overdue(now);
      }
      connections.end_overdue(now);
      for (const auto& [number, pair] : open) {
        EXPECT_EQ(is_ended(pair), pair.until <= now) << "connection " << number;
        ended += is_ended(pair) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(displaced, 20);
  EXPECT_GT(ended, 20);
}

// One line of each kind in a while, with the number of those that were left out.
TEST(SilentConnections, AKindHasOneLine) {
  const LogLines log;
  SilentConnections connections(std::make_shared<LogLimits>(), {2, kLongest});
  const Time start{std::chrono::hours(1)};
  const Pair one = make_pair_until(start), two = make_pair_until(start);
  connections.add(one.listener.get(), "10.0.0.1:5", start);
  connections.add(two.listener.get(), "10.0.0.2:5", start);
  EXPECT_FALSE(is_ended(one));
  connections.make_room(start);
  EXPECT_TRUE(is_ended(one));
  EXPECT_FALSE(is_ended(two));
  EXPECT_EQ(log.count({"dropped a connection from 10.0.0.1:5: it and 1 newer ones have sent"}), 1U)
      << log.text();
  const Pair three = make_pair_until(start), four = make_pair_until(start);
  connections.add(three.listener.get(), "10.0.0.3:5", start);
  connections.make_room(start);
  EXPECT_TRUE(is_ended(two));
  connections.add(four.listener.get(), "10.0.0.4:5", start);
  EXPECT_EQ(log.count({"newer ones have sent nothing yet"}), 1U) << log.text();
  connections.end_overdue(start + kLongest);
  EXPECT_EQ(log.count({"dropped a connection from 10.0.0.3:5: no first message came within 10 s"}),
            1U)
      << log.text();
  EXPECT_EQ(log.count({"no first message"}), 1U) << log.text();
  EXPECT_TRUE(is_ended(three) && is_ended(four));
}

}  // namespace silent_connections_test
}  // namespace grapevine
