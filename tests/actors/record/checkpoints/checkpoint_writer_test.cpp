// The CheckpointWriter: whatever is kept, the newest checkpoint is there and whole.
#include "actors/record/checkpoints/checkpoint_writer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "tests/apps/process.hpp"

namespace grapevine {
namespace checkpoint_writer_test {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kDeadline{120};  // only a hang reaches it

class Writer {
 public:
  explicit Writer(CheckpointWriterConfig config) : self_(system_) {
    config.supervisor =
        caf::actor_cast<SupervisorActor>(caf::actor_cast<caf::strong_actor_ptr>(self_.ptr()));
    actor_ = system_.spawn(checkpoint_writer, std::move(config));
  }
  ~Writer() { self_->send_exit(actor_, caf::exit_reason::user_shutdown); }

  void write(const std::string& name, Step step) {
    RankSnapshot snapshot;
    snapshot.step = step;
    snapshot.state.put("model.step", step);
    self_->send(actor_, WriteCheckpoint{++orders_, name, {snapshot}, {}, {}});
  }
  void validate(Epoch epoch, double top1) {
    EpochEvaluated done;
    done.epoch = epoch;
    done.evaluation.top1 = top1;
    self_->send(actor_, done);
  }
  // Waits for all of them.
  void wait() {
    while (written_ < orders_)
      self_->receive([](Progress) {},
                     [this](const CheckpointWritten& done) {
                       EXPECT_EQ(done.error, "");
                       ++written_;
                     },
                     caf::after(kDeadline) >>
                         [this] {
                           ADD_FAILURE() << "nothing came";
                           written_ = orders_;
                         });
  }

 private:
  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  caf::scoped_actor self_;
  CheckpointWriterActor actor_;
  std::int64_t orders_ = 0, written_ = 0;
};

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (!entry.is_symlink()) names.push_back(entry.path().filename().string());
  return names;
}

// A continued run writes "final" again, and the one before it is no longer kept at that moment.
TEST(CheckpointWriter, ANameThatIsTakenAgainIsTheNewestOne) {
  std::uint32_t seed = 0;
  for (const char* keep : {"best", "latest", "1", "2"}) {
    SCOPED_TRACE(testing::Message() << keep << ", seed " << ++seed);
    std::mt19937 random(seed);
    const TemporaryDirectory folder;
    std::string resumed_from;
    Epoch epoch = 0;
    for (int run = 1; run <= 6; ++run) {
      CheckpointWriterConfig config;
      config.folder = folder.path().string();
      config.kept = *parse_kept_checkpoints(keep);
      config.resumed_from = resumed_from;
      const Step last = 100 * run;
      {
        Writer writer(std::move(config));
        for (int i = static_cast<int>(random() % 3); i > 0; --i, ++epoch) {
          writer.write("epoch-000" + std::to_string(1 + epoch % 4), last - i);
          if (random() % 2 == 0) writer.validate(epoch % 4, static_cast<double>(random() % 100));
        }
        writer.write("final", last);
        if (random() % 2 == 0) writer.validate(epoch % 4, static_cast<double>(random() % 100));
        writer.wait();
      }
      const auto newest = read_checkpoint(folder.path().string());
      ASSERT_TRUE(newest.ok()) << newest.error().message;
      EXPECT_EQ(*newest->ranks.at(0).integer("model.step"), last);
      EXPECT_EQ(fs::path(newest->path).filename(), "final");
      const std::vector<std::string> names = names_in(folder.path());
      if (keep != std::string("best")) {
        EXPECT_LE(names.size(), keep == std::string("2") ? 2U : 1U)
            << testing::PrintToString(names);
      }
      resumed_from = newest->path;
    }
  }
}

// One that lies elsewhere belongs to another run.
TEST(CheckpointWriter, RemovesNothingOfARunInAnotherFolder) {
  const TemporaryDirectory own, other;
  const auto write = [&](const fs::path& folder, const std::string& from, const char* name) {
    CheckpointWriterConfig config;
    config.folder = folder.string();
    config.kept = *parse_kept_checkpoints("latest");
    config.resumed_from = from;
    Writer writer(std::move(config));
    writer.write(name, 1);
    writer.wait();
  };
  write(other.path(), "", "final");
  write(own.path(), "", "epoch-0001");
  write(own.path(), (other.path() / "final").string(), "epoch-0002");
  EXPECT_EQ(names_in(other.path()), std::vector<std::string>{"final"});
  EXPECT_EQ(names_in(own.path()).size(), 2U) << "an older run's was removed";
  write(own.path(), (own.path() / "epoch-0002").string(), "epoch-0003");
  EXPECT_EQ(names_in(own.path()), std::vector<std::string>{"epoch-0003"});
}

}  // namespace checkpoint_writer_test
}  // namespace grapevine
