#include "apps/monitoring/metrics_endpoint.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "apps/monitoring/own_hosts.hpp"
#include "net/addresses.hpp"
#include "tests/apps/monitoring/http_get.hpp"
#include "tests/log_lines.hpp"

namespace grapevine {
namespace metrics_endpoint_test {

constexpr char kLoopback[] = "127.0.0.1";

std::unique_ptr<MetricsEndpoint> make_endpoint() {
  auto endpoint =
      MetricsEndpoint::create({kLoopback, 0, ""}, {"sgp", "lenet", "glyphs", "inproc", "1.2.3", 4});
  EXPECT_TRUE(endpoint.ok()) << endpoint.error().message;
  return *std::move(endpoint);
}

// The line of one figure, e.g. "grapevine_step{rank=\"1\"} 7".
void expect_line(const std::string& answer, const std::string& line) {
  EXPECT_NE(answer.find("\n" + line + "\n"), std::string::npos) << line << "\nin\n" << answer;
}

// A request that never ends: a client that lives for as long as it likes.
TEST(MetricsEndpoint, DoesNotWaitForASlowClient) {
  auto endpoint = make_endpoint();
  const int socket = connect_to(endpoint->port());
  ASSERT_GE(socket, 0);
  std::atomic<bool> served{true};
  std::thread client([&] {
    const std::string request = "GET /" + std::string(7000, 'x');
    for (std::size_t i = 0; i < request.size() && served; ++i) {
      if (::send(socket, &request[i], 1, MSG_NOSIGNAL) != 1) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // 12 minutes in all
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  auto closed = std::async(std::launch::async, [&] { endpoint.reset(); });
  EXPECT_EQ(closed.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  served = false;
  client.join();
  ::close(socket);
}

TEST(MetricsEndpoint, DescribesTheRunAsItIsNow) {
  const auto endpoint = make_endpoint();
  const auto info = [](const std::string& algorithm) {
    return "grapevine_run_info{algorithm=\"" + algorithm +
           "\",data=\"glyphs\",model=\"lenet\",transport=\"inproc\",version=\"1.2.3\"} 1";
  };
  expect_line(http_get(endpoint->port(), "/metrics"), info("sgp"));
  endpoint->on_changed({{"lr", "0.1"}});
  expect_line(http_get(endpoint->port(), "/metrics"), info("sgp"));
  endpoint->on_changed({{"algorithm", "gem"}, {"wiring.servers", "2"}});
  const std::string now = http_get(endpoint->port(), "/metrics");
  expect_line(now, info("gem"));
  EXPECT_EQ(now.find(info("sgp")), std::string::npos) << now;
}

TEST(MetricsEndpoint, TellsWhatWasReported) {
  const auto endpoint = make_endpoint();
  StepReport report;
  report.rank = 1;
  report.step = 6;
  report.samples = 32;
  report.loss = 0.5;
  report.top1 = std::numeric_limits<double>::quiet_NaN();
  report.lr = 0.25;
  report.batch_time_s = 0.02;
  report.exchange_time_s = 0.5;
  report.staleness = 2;
  endpoint->on_step(report);
  report.step = 7;
  endpoint->on_step(report);
  endpoint->on_validation(2, 7, {0.125, 0.75, 0.875, 100});
  endpoint->on_checkpoint();
  endpoint->on_warning();
  std::string answer = http_get(endpoint->port(), "/metrics");
  EXPECT_EQ(answer.rfind("HTTP/1.1 200", 0), 0U) << answer;
  std::size_t at = 0;
  while ((at = answer.find('\r')) != std::string::npos) answer.erase(at, 1);
  expect_line(answer, "grapevine_steps_total{rank=\"1\"} 2");
  expect_line(answer, "grapevine_samples_total{rank=\"1\"} 64");
  expect_line(answer, "grapevine_exchange_wait_seconds_total{rank=\"1\"} 1");
  expect_line(answer, "grapevine_step{rank=\"1\"} 7");
  expect_line(answer, "grapevine_loss{rank=\"1\"} 0.5");
  expect_line(answer, "grapevine_learning_rate{rank=\"1\"} 0.25");
  expect_line(answer, "grapevine_staleness_steps{rank=\"1\"} 2");
  expect_line(answer, "grapevine_step_seconds_count 2");
  expect_line(answer, "grapevine_step_seconds_bucket{le=\"0.025\"} 2");
  expect_line(answer, "grapevine_step_seconds_bucket{le=\"0.01\"} 0");
  expect_line(answer, "grapevine_validation_top1_ratio 0.75");
  expect_line(answer, "grapevine_validation_epochs 3");
  expect_line(answer, "grapevine_checkpoints_total 1");
  expect_line(answer, "grapevine_warnings_total 1");
  expect_line(answer, "grapevine_workers 4");
  for (const char* label : {"algorithm=\"sgp\"", "model=\"lenet\"", "version=\"1.2.3\""})
    EXPECT_NE(answer.find(label), std::string::npos) << label;
  EXPECT_EQ(answer.find("rank=\"0\""), std::string::npos) << "nobody has heard of it";
}

TEST(MetricsEndpoint, ALossThatIsNoNumberShows) {
  const auto endpoint = make_endpoint();
  StepReport report;
  report.loss = std::numeric_limits<double>::quiet_NaN();
  endpoint->on_step(report);
  EXPECT_NE(http_get(endpoint->port(), "/metrics").find("grapevine_loss{rank=\"0\"} Nan"),
            std::string::npos)
      << http_get(endpoint->port(), "/metrics");
}

TEST(MetricsEndpoint, SaysWhyItCannotListen) {
  const auto first = make_endpoint();
  const auto second = MetricsEndpoint::create({kLoopback, first->port(), ""}, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Errc::bad_input);
  const std::string& text = second.error().message;
  EXPECT_NE(text.find("--metrics-port " + std::to_string(first->port())), std::string::npos)
      << text;
  EXPECT_NE(text.find("in use"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_NE(text.find("choose another port"), std::string::npos) << text;
  const auto nowhere = MetricsEndpoint::create({"nowhere.invalid", 9, "me"}, {});
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().message.rfind("--metrics-port me@nowhere.invalid:9: cannot listen", 0),
            0U)
      << nowhere.error().message;
  EXPECT_NE(nowhere.error().message.find("give an address or a name of this machine"),
            std::string::npos)
      << nowhere.error().message;
}

// Bytes of this process that are in memory.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// What a client could send before it was cut off; at most `most` bytes are tried.
std::size_t sent_until_cut_off(int port, const std::string& head, const std::string& more,
                               std::size_t most) {
  const int socket = connect_to(port);
  EXPECT_GE(socket, 0);
  std::size_t sent = 0;
  if (::send(socket, head.data(), head.size(), MSG_NOSIGNAL) > 0)
    while (sent < most) {
      const ssize_t count = ::send(socket, more.data(), more.size(), MSG_NOSIGNAL);
      if (count <= 0) break;
      sent += static_cast<std::size_t>(count);
    }
  ::close(socket);
  return sent;
}

// Whatever never ends: a body, one in chunks, a line, headers.
TEST(MetricsEndpoint, AClientThatSendsForEverIsCutOff) {
  const LogLines log;
  const auto endpoint = make_endpoint();
  http_get(endpoint->port(), "/metrics");  // its threads have their memory
  const std::string post = "POST /x HTTP/1.1\r\nHost: h\r\n";
  const std::string block(1 << 16, 'x');
  std::string lines, chunk = "10000\r\n" + block + "\r\n";
  for (int i = 0; i < 1000; ++i) lines += "X-" + std::to_string(i) + ": y\r\n";
  const std::vector<std::pair<std::string, std::string>> requests = {
      {post + "Content-Length: 100000000000\r\n\r\n", block},
      {"PUT /x HTTP/1.1\r\nContent-Length: 100000000000\r\n\r\n", block},
      {"DELETE /metrics HTTP/1.1\r\nContent-Length: 100000000000\r\n\r\n", block},
      {post + "Transfer-Encoding: chunked\r\n\r\n", chunk},
      {"GET /metrics HTTP/1.1\r\nContent-Length: 100000000000\r\n\r\n", block},
      {"GET /", block},
      {"GET /metrics HTTP/1.1\r\nX: ", block},
      {"GET /metrics HTTP/1.1\r\n", lines}};
  constexpr std::size_t kMost = std::size_t{256} << 20;
  const std::size_t before = resident_bytes();
  for (const auto& [head, more] : requests) {
    SCOPED_TRACE(head);
    EXPECT_LT(sent_until_cut_off(endpoint->port(), head, more, kMost), kMost);
    EXPECT_LT(resident_bytes(), before + (std::size_t{32} << 20));
  }
  EXPECT_NE(http_get(endpoint->port(), "/metrics").find(" 200 "), std::string::npos);
  for (const char* why : {"its request is neither GET nor HEAD", "its request is too long"})
    EXPECT_TRUE(log.wait_for({"metrics: a client is refused", why})) << log.text();
}

TEST(MetricsEndpoint, TakesNothingButQuestions) {
  const auto endpoint = make_endpoint();
  for (const char* method : {"POST", "PUT", "PATCH", "DELETE", "OPTIONS"}) {
    const std::string answer = http_request(endpoint->port(), method, "/metrics");
    EXPECT_NE(answer.find(" 405 "), std::string::npos) << method << "\n" << answer;
    EXPECT_NE(answer.find("Allow: GET, HEAD"), std::string::npos) << answer;
  }
  EXPECT_NE(http_request(endpoint->port(), "HEAD", "/metrics").find(" 200 "), std::string::npos);
}

// Else each of a thousand ranges would have a part of its own, as large as the whole.
TEST(MetricsEndpoint, AnswersRangesWithTheWholeOnce) {
  const auto endpoint = make_endpoint();
  const std::string whole = http_get(endpoint->port(), "/metrics");
  std::string header = "Range: bytes=0-";
  for (int i = 1; i < 1000; ++i) header += ",0-";
  const std::string answer = http_request(endpoint->port(), "GET", "/metrics", header + "\r\n");
  EXPECT_EQ(answer.rfind("HTTP/1.1 200", 0), 0U) << answer.substr(0, 1000);
  EXPECT_EQ(answer.size(), whole.size()) << answer.substr(0, 1000);
}

// Of the answer to a request with that header.
std::string status_under(int port, const std::string& header) {
  const int socket = connect_to(port);
  const std::string request = "GET /metrics HTTP/1.1\r\n" + header + "Connection: close\r\n\r\n";
  EXPECT_EQ(::send(socket, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer(13, ' ');
  EXPECT_EQ(::recv(socket, answer.data(), answer.size(), MSG_WAITALL), 13);
  ::close(socket);
  return answer.substr(9, 3);
}

// A page of another site, whose name leads to this machine, reads nothing here.
TEST(MetricsEndpoint, AnswersOnlyUnderItsOwnNames) {
  const LogLines log;
  const auto endpoint = make_endpoint();
  const auto status_for = [&](const std::string& header) {
    return status_under(endpoint->port(), header);
  };
  for (const std::string& own :
       {std::string("127.0.0.1"), std::string("127.0.0.1:9400"), std::string("10.11.12.13:1"),
        std::string("[::1]:9400"), std::string("[fe80::1]"), std::string("localhost:9400"),
        std::string("LocalHost."), machine_name(), machine_name() + ":9400"})
    EXPECT_EQ(status_for("Host: " + own + "\r\n"), "200") << own;
  EXPECT_EQ(status_for(""), "200");
  for (const char* other : {"evil.example", "evil.example:9400", "127.0.0.1.evil.example",
                            "localhost.evil.example:9400", "[::1.evil", "0x7f.1", "x@127.0.0.1"})
    EXPECT_EQ(status_for(std::string("Host: ") + other + "\r\n"), "403") << other;
  EXPECT_GE(log.count({"metrics: a client is refused", "another host"}), 1U) << log.text();
}

// An alias of this machine in DNS, or the name of a proxy in front of it.
TEST(MetricsEndpoint, AnswersUnderTheNameInItsPlace) {
  const auto endpoint = MetricsEndpoint::create(
      *parse_named_address("--metrics-port", "train.example@127.0.0.1:0"), {});
  ASSERT_TRUE(endpoint.ok()) << endpoint.error().message;
  const int port = (*endpoint)->port();
  EXPECT_EQ(status_under(port, "Host: Train.Example:9400\r\n"), "200");
  EXPECT_EQ(status_under(port, "Host: evil.example:9400\r\n"), "403");
}

TEST(OwnHosts, AnyNameThatTheUserGives) {
  OwnHosts hosts({"Train.Example", "", "alias"});
  EXPECT_TRUE(hosts.include("train.example:9400"));
  EXPECT_TRUE(hosts.include("ALIAS"));
  EXPECT_FALSE(hosts.include("train.example.com:9400"));
  EXPECT_FALSE(hosts.include(":9400"));
}

// Connections that ask nothing take neither the threads for long nor memory without a bound.
TEST(MetricsEndpoint, ManyIdleClientsAreCutOff) {
  const auto endpoint = make_endpoint();
  std::vector<int> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(connect_to(endpoint->port()));
  int ended = 0;
  for (int tries = 0; tries < 600 && ended < 100; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ended = 0;
    for (const int socket : idle) {
      pollfd wait{socket, POLLIN, 0};
      if (::poll(&wait, 1, 0) > 0) ++ended;
    }
  }
  EXPECT_GE(ended, 100);
  for (const int socket : idle) ::close(socket);
  // Once those that were still waiting are found to be closed; until then others are cut off, too.
  const auto is_served = [&] {
    return http_get(endpoint->port(), "/metrics").find(" 200 ") != std::string::npos;
  };
  bool served = is_served();
  for (int tries = 0; tries < 600 && !served; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    served = is_served();
  }
  EXPECT_TRUE(served);
}

}  // namespace metrics_endpoint_test
}  // namespace grapevine
