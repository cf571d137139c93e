#include "apps/monitoring/metrics_endpoint.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <thread>

#include "tests/apps/http_get.hpp"

namespace grapevine {
namespace {

constexpr char kLoopback[] = "127.0.0.1";

std::unique_ptr<MetricsEndpoint> make_endpoint() {
  auto endpoint =
      MetricsEndpoint::create(kLoopback, 0, {"sgp", "lenet", "glyphs", "inproc", "1.2.3", 4});
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
  const auto second = MetricsEndpoint::create(kLoopback, first->port(), {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Errc::bad_input);
  const std::string& text = second.error().message;
  EXPECT_NE(text.find("--metrics-port " + std::to_string(first->port())), std::string::npos)
      << text;
  EXPECT_NE(text.find("in use"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_FALSE(MetricsEndpoint::create("nowhere.invalid", 0, {}).ok());
}

}  // namespace
}  // namespace grapevine
