// The page of a running job, in a browser: what the run answers stands there, and nothing else is
// asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "apps/monitoring/metrics_endpoint.hpp"
#include "tests/apps/monitoring/http_get.hpp"
#include "tests/apps/top/status_example.hpp"
#include "tests/apps/trace/browser.hpp"

namespace grapevine {
namespace live_page_test {

using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::unique_ptr<MetricsEndpoint> make_endpoint(
    std::function<Expected<nlohmann::ordered_json>()> status) {
  RunLabels labels{"ar", "mlp", "glyphs", "tcp", "1.2.3", 4};
  labels.status = std::move(status);
  auto endpoint = MetricsEndpoint::create({"127.0.0.1", 0, ""}, labels);
  EXPECT_TRUE(endpoint.ok()) << endpoint.error().message;
  return *std::move(endpoint);
}

std::string root_of(const MetricsEndpoint& endpoint) {
  return "http://127.0.0.1:" + std::to_string(endpoint.port()) + "/";
}

class LivePage : public testing::Test {
 protected:
  void SetUp() override {
    browser_ = Browser::find(folder_.path());
    if (!browser_) GTEST_SKIP() << "there is no Chromium here (Debian: chromium)";
  }
  OpenedPage open(const MetricsEndpoint& endpoint) const {
    return browser_->open_address(root_of(endpoint),
                                  {"--virtual-time-budget=3000", "--window-size=1200,1400"});
  }

  TemporaryDirectory folder_;
  std::optional<Browser> browser_;
};

TEST_F(LivePage, ShowsWhatTheRunAnswers) {
  const auto endpoint = make_endpoint([] { return stalled_json(); });
  const OpenedPage page = open(*endpoint);
  EXPECT_EQ(page.problem, "");
  EXPECT_EQ(page.attribute("", "data-ready"), "true") << page.dom;
  EXPECT_TRUE(page.console.empty()) << page.console.front();
  EXPECT_THAT(page.requests, Each(StartsWith(root_of(*endpoint))));
  for (const char* part :
       {"ar: mlp on glyphs", "runs/first on machine", "1.50 of 3.00", "0.876",
        "rank 2 of process 2 has not answered for 12 s", "data-rank=\"2\" data-state=\"no answer\"",
        "data-rank=\"0\" data-state=\"waits\"", "chunk 5/6 of operation 812 from rank 2", "6.00 MB",
        "→ 3"})
    EXPECT_THAT(page.dom, HasSubstr(part));
  // Texts of the run are no markup.
  EXPECT_THAT(page.dom, HasSubstr("&lt;b&gt;rank 7&lt;/b&gt; is &amp; was slow"));
}

TEST_F(LivePage, SaysThatTheRunDoesNotAnswer) {
  const auto endpoint = make_endpoint([]() -> Expected<nlohmann::ordered_json> {
    return Error{Errc::timeout, "process 0 is <overloaded>"};
  });
  const OpenedPage page = open(*endpoint);
  EXPECT_THAT(page.dom, HasSubstr("process 0 is &lt;overloaded&gt;"));
  EXPECT_EQ(page.attribute("", "data-ready"), "(none)");
}

TEST(LivePageServer, RestrictsThePageAndChangesNothing) {
  const auto endpoint = make_endpoint([] { return stalled_json(); });
  const std::string page = http_get(endpoint->port(), "/");
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(page, HasSubstr("script-src 'sha256-"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  EXPECT_THAT(page, Not(HasSubstr("http://")));
  EXPECT_THAT(http_get(endpoint->port(), "/status.json"), HasSubstr("\"stage\":\"running\""));
  for (const char* method : {"POST", "PUT", "DELETE"})
    EXPECT_THAT(http_request(endpoint->port(), method, "/status.json"), HasSubstr(" 405 "));
  EXPECT_THAT(http_get(endpoint->port(), "/v1/stop"), HasSubstr(" 404 "));
}

// A run without anything to ask has figures alone.
TEST(LivePageServer, IsThereOnlyWithARun) {
  const auto endpoint = make_endpoint(nullptr);
  EXPECT_THAT(http_get(endpoint->port(), "/"), HasSubstr(" 404 "));
  EXPECT_THAT(http_get(endpoint->port(), "/metrics"), HasSubstr("grapevine_run_info"));
}

}  // namespace live_page_test
}  // namespace grapevine
