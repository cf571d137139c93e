// Which GPUs a worker has for itself: ids that processes of a machine tell each other by files.
#include "gpu/replicas/gpu_claims.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <random>

namespace grapevine {
namespace gpu_claims_test {

using Ids = std::vector<std::string>;
constexpr Duration kLong = std::chrono::seconds(30);
constexpr Duration kShort = std::chrono::milliseconds(50);

Ids sorted(Ids ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Two tasks of a scheduler that binds GPUs see cuda:0 and cuda:1 each, and not the same ones.
TEST(SharedGpu, CountsGpusAndNotNumbers) {
  const Ids first = {"GPU-a", "GPU-b"}, second = {"GPU-c", "GPU-d"};
  EXPECT_EQ(shared_gpu(first, {"GPU-a", "GPU-b", "GPU-c", "GPU-d"}), "");
  EXPECT_EQ(shared_gpu(second, {"GPU-a", "GPU-b", "GPU-c", "GPU-d"}), "");
  EXPECT_EQ(shared_gpu(first, {"GPU-a", "GPU-b", "GPU-c", "GPU-b"}), "GPU-b");
  EXPECT_EQ(shared_gpu({"", ""}, {"", "", "", ""}), "") << "CPUs";
}

// Whatever GPUs the workers have: shared is one that two of them name.
TEST(SharedGpu, IsOneThatAnotherWorkerNames) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Ids> workers(1 + random() % 4);
    Ids all;
    for (Ids& worker : workers) {
      for (std::size_t i = 1 + random() % 3; i > 0; --i)
        worker.push_back("GPU-" + std::to_string(random() % 8));
      all.insert(all.end(), worker.begin(), worker.end());
    }
    for (std::size_t i = 0; i < workers.size(); ++i) {
      bool named = false;
      for (std::size_t j = 0; j < workers.size(); ++j)
        for (const std::string& id : workers[j])
          named = named || (j != i && std::count(workers[i].begin(), workers[i].end(), id) > 0);
      EXPECT_EQ(shared_gpu(workers[i], all).empty(), !named) << "seed " << seed;
    }
  }
}

class Claims : public testing::Test {
 protected:
  Claims() {
    std::string name = testing::TempDir() + "/claims-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Claims() override { std::filesystem::remove_all(folder_); }

  GpuClaims post(const std::string& run, int process, const Ids& ids) const {
    auto posted = GpuClaims::post(folder_, run, process, ids);
    EXPECT_TRUE(posted.ok()) << posted.error().message;
    return *std::move(posted);
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::string folder_;
};

TEST_F(Claims, AreGatheredWhenAllProcessesOfTheRunHavePosted) {
  const GpuClaims other = post("another run", 1, {"GPU-z"});
  const GpuClaims first = post("host:1", 0, {"GPU-a", "GPU-b"});
  EXPECT_EQ(first.gather(2, kShort).error().code, Errc::timeout);
  auto gathering = std::async(std::launch::async, [&] { return first.gather(2, kLong); });
  const GpuClaims second = post("host:1", 1, {"GPU-c", ""});
  const Ids expected = sorted({"", "GPU-a", "GPU-b", "GPU-c", "GPU-z"});
  EXPECT_EQ(sorted(gathering.get().value()), expected);
  EXPECT_EQ(sorted(second.gather(2, kLong).value()), expected);
}

TEST_F(Claims, OfAProcessThatStartedAgainAreCountedOnce) {
  const GpuClaims first = post("host:1", 0, {"GPU-a"}), again = post("host:1", 0, {"GPU-a"});
  EXPECT_EQ(first.gather(2, kShort).error().code, Errc::timeout);
}

TEST_F(Claims, EndWithTheirProcess) {
  const GpuClaims mine = post("host:1", 0, {"GPU-a"});
  {
    const GpuClaims withdrawn = post("host:1", 1, {"GPU-b"});
    EXPECT_EQ(mine.gather(2, kLong)->size(), 2U);
  }
  EXPECT_EQ(files(), 1U);
  const pid_t child = ::fork();
  if (child == 0) {
    static std::optional<GpuClaims> killed;
    auto posted = GpuClaims::post(folder_, "host:1", 1, {"GPU-a"});
    if (posted) killed.emplace(*std::move(posted));
    ::_exit(posted.ok() ? 0 : 1);  // without its destructor
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(files(), 2U);
  EXPECT_EQ(mine.gather(1, kLong).value(), Ids{"GPU-a"});
  EXPECT_EQ(files(), 1U);
}

// All processes of a machine read at the same time, and each tests by a lock whether others live.
TEST_F(Claims, OfADeadProcessDoNotCountWhileAnotherProcessReads) {
  const std::string dead = folder_ + "/claim-123456";
  std::ofstream(dead) << "host:1\n7\nGPU-a\n";
  const int reader = ::open(dead.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(reader, LOCK_SH | LOCK_NB), 0);
  const GpuClaims mine = post("host:1", 0, {"GPU-b"});
  EXPECT_EQ(mine.gather(1, kLong).value(), Ids{"GPU-b"});
  ::close(reader);
}

TEST(ClaimsFolder, IsTheSameWhateverFolderASchedulerGivesATask) {
  const char* before = std::getenv("TMPDIR");
  const std::optional<std::string> old =
      before == nullptr ? std::nullopt : std::optional<std::string>(before);
  const std::string folder = gpu_claims_folder();
  ::setenv("TMPDIR", "/scratch/task.7", 1);
  EXPECT_EQ(gpu_claims_folder(), folder);
  old ? ::setenv("TMPDIR", old->c_str(), 1) : ::unsetenv("TMPDIR");
}

TEST_F(Claims, OthersFilesAreNotBelieved) {
  std::ofstream(folder_ + "/claim-123456") << "host:1\n7\nGPU-a\n";  // nobody holds it
  ASSERT_EQ(::symlink("/dev/zero", (folder_ + "/claim-link").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder_ + "/claim-pipe").c_str(), 0600), 0);
  const GpuClaims mine = post("host:1", 0, {"GPU-a"});
  EXPECT_EQ(mine.gather(1, kLong).value(), Ids{"GPU-a"});
  std::filesystem::permissions(folder_, std::filesystem::perms::all);
  EXPECT_EQ(GpuClaims::post(folder_, "host:1", 1, {}).error().code, Errc::io);
  EXPECT_EQ(GpuClaims::post(folder_ + "/no/such", "host:1", 1, {}).error().code, Errc::io);
}

}  // namespace gpu_claims_test
}  // namespace grapevine
