// A tracer whose disk refuses what it writes.
#include "actors/record/tracer.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/actors/virtual_actors.hpp"
#include "tests/apps/trace/trace_folder.hpp"
#include "tests/messages/trace/all_records.hpp"

namespace grapevine {
namespace tracer_test {

class TracerTest : public VirtualActors {
 protected:
  TracerTest() {
    TracerConfig config;
    config.settings.folder = folder_.path("trace");
    config.settings.header.workers = 1;
    config.settings.header.ranks = {0};
    config.owner = played<TraceOwner>();
    tracer_ = system_.spawn(grapevine::tracer, config);
  }
  ~TracerTest() override { kill(tracer_); }

  void write_step(Step step) {
    TraceBatch batch;
    batch.records.push_back(testing_apps::record_of(EventKind::step_done, 10 * step, 0, step));
    self_->send(tracer_, batch);
    settle();
  }
  template <class Message>
  std::vector<Message> received() {
    settle();
    std::vector<Message> all;
    bool more = true;
    while (more)
      self_->receive([&](const Message& message) { all.push_back(message); },
                     caf::after(std::chrono::seconds(0)) >> [&] { more = false; });
    return all;
  }
  TraceClosed close() {
    self_->send(tracer_, CloseTrace{});
    const auto closed = received<TraceClosed>();
    EXPECT_EQ(closed.size(), 1U);
    return closed.empty() ? TraceClosed{} : closed.front();
  }

  const testing_apps::TestFolder folder_;
  TracerActor tracer_;
};

// The folder is missing for a while, as room on a disk may be.
TEST_F(TracerTest, SaysAtOnceWhatIsRefusedAndGoesOn) {
  const SettingsChange change{5, {{"lr", "1"}}};
  self_->send(tracer_, change);
  for (Step step = 0; step < 3; ++step) write_step(step);
  const auto refused = received<TraceRefused>();
  ASSERT_EQ(refused.size(), 1U) << "for the first time";
  EXPECT_NE(refused[0].error.find("process-0000.gvtrace"), std::string::npos) << refused[0].error;
  std::filesystem::create_directory(folder_.path("trace"));
  for (Step step = 3; step < 5; ++step) write_step(step);
  EXPECT_EQ(close().error, refused[0].error + "; 3 records are missing");

  const std::string path = folder_.path("trace/process-0000.gvtrace");
  const auto index = index_trace_file(path);
  ASSERT_TRUE(index.ok()) << index.error().message;
  EXPECT_TRUE(index->closed);
  EXPECT_EQ(index->problem, "");
  EXPECT_EQ(index->left_out, 3U);
  EXPECT_EQ(index->changes, std::vector<SettingsChange>{change}) << "it comes later";
  const auto records = read_trace_file(path);
  ASSERT_TRUE(records.ok());
  ASSERT_EQ(records->size(), 2U);
  EXPECT_EQ(records->front().step, 3);
}

TEST_F(TracerTest, SaysNothingOfATraceThatIsWhole) {
  std::filesystem::create_directory(folder_.path("trace"));
  write_step(0);
  EXPECT_TRUE(received<TraceRefused>().empty());
  EXPECT_EQ(close().error, "");
}

}  // namespace tracer_test
}  // namespace grapevine
