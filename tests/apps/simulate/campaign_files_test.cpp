#include "apps/simulate/campaign_files.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"
#include "tests/file_size_limit.hpp"

namespace grapevine {
namespace campaign_files_test {

namespace fs = std::filesystem;

int files_in(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), {}));
}

SeedVerdict passed() {
  SeedVerdict verdict;
  verdict.hash = "00000000000000ab";
  verdict.events = 12;
  verdict.virtual_seconds = 0.25;
  return verdict;
}

std::string refusal(const fs::path& folder, bool overwrite) {
  const auto files = CampaignFiles::create(folder.string(), overwrite, 0);
  EXPECT_FALSE(files.ok());
  if (files) return "";
  EXPECT_EQ(files.error().code, Errc::bad_input);
  return files.error().message;
}

TEST(CampaignFiles, RowsAreInTheOrderOfTheSeedsAndThoseOfFailuresAreQuoted) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "new" / "campaign";
  auto files = CampaignFiles::create(out.string(), false, 7);
  ASSERT_TRUE(files.ok()) << files.error().message;
  SeedVerdict failed = passed();
  failed.faults = "crash=1@20ms,pause=2@1s+1s";
  failed.violations = {"sum: rank 1 has \"moved\", too far", "process: it ended\nearly"};
  files->add(9, passed());
  files->add(8, failed);
  files->add(7, passed());
  EXPECT_FALSE(fs::exists(out / "seeds.csv"));
  ASSERT_TRUE(files->commit("{}\n").ok());
  EXPECT_EQ(read_file(out / "seeds.csv"),
            "seed,failed,events,virtual_seconds,trace_hash,faults,violations\n"
            "7,0,12,0.25,00000000000000ab,\"\",\"\"\n"
            "8,1,12,0.25,00000000000000ab,\"crash=1@20ms,pause=2@1s+1s\","
            "\"sum: rank 1 has \"\"moved\"\", too far; process: it ended early\"\n"
            "9,0,12,0.25,00000000000000ab,\"\",\"\"\n");
  EXPECT_EQ(read_file(out / "campaign.json"), "{}\n");
  EXPECT_EQ(files_in(out), 2);
}

// Also where only the second file does not fit.
TEST(CampaignFiles, FilesThatCannotBeWrittenLeaveThoseOfTheCampaignBefore) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path();
  for (const char* name : {"seeds.csv", "campaign.json"}) std::ofstream(out / name) << "before";
  for (const rlim_t most : {50, 500}) {
    auto files = CampaignFiles::create(out.string(), true, 0);
    ASSERT_TRUE(files.ok()) << files.error().message;
    const FileSizeLimit limit(most);
    files->add(0, passed());
    const auto written = files->commit(std::string(1000, 'x'));
    ASSERT_FALSE(written.ok()) << most;
    EXPECT_EQ(written.error().code, Errc::io);
  }
  EXPECT_EQ(read_file(out / "seeds.csv"), "before");
  EXPECT_EQ(read_file(out / "campaign.json"), "before");
  EXPECT_EQ(files_in(out), 2);
}

TEST(CampaignFiles, AFolderIsForOneCampaignOrRunAtATime) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path();
  {
    const FolderLock held = *lock_folder(out);
    ASSERT_NE(held, nullptr);
    for (const bool overwrite : {false, true})
      EXPECT_NE(refusal(out, overwrite).find("another run writes there"), std::string::npos);
  }
  const auto files = CampaignFiles::create(out.string(), false, 0);
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_NE(refusal(out, true).find("another run writes there"), std::string::npos);
}

// The number is above those of processes.
TEST(CampaignFiles, WhatAnInterruptedCampaignLeftIsNoFile) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() / ".grapevine-999999999-0.tmp") << "seed,failed\n";
  EXPECT_TRUE(CampaignFiles::create(folder.path().string(), false, 0).ok());
  std::ofstream(folder.path() / "notes") << "of the user";
  EXPECT_NE(refusal(folder.path(), false).find("has files"), std::string::npos);
  EXPECT_TRUE(CampaignFiles::create(folder.path().string(), true, 0).ok());
}

TEST(CampaignFiles, AFolderInTheWayOfAFileIsFoundBeforeTheFirstSeed) {
  for (const char* name : {"seeds.csv", "campaign.json"}) {
    const TemporaryDirectory folder;
    fs::create_directory(folder.path() / name);
    EXPECT_NE(refusal(folder.path(), true).find(name), std::string::npos);
  }
}

// This thread as another user, as root has all rights. No call of the library: that changes the
// user of all threads.
class AsNobody {
 public:
  AsNobody() {
    if (was_root_) ::syscall(SYS_setresuid, -1, 65533, -1);
  }
  ~AsNobody() {
    if (was_root_) ::syscall(SYS_setresuid, -1, 0, -1);
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  const bool was_root_ = ::geteuid() == 0;
};

TEST(CampaignFiles, AFolderThatCannotBeReadIsNotSaidToHaveFiles) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "unreadable";
  fs::create_directory(out);
  fs::permissions(folder.path(), fs::perms(0711));
  fs::permissions(out, fs::perms(0333));
  {
    const AsNobody user;
    if (::geteuid() == 0 || ::euidaccess(out.c_str(), W_OK | X_OK) != 0)
      GTEST_SKIP() << "another user cannot reach the folder of the test";
    const std::string refused = refusal(out, false);
    EXPECT_NE(refused.find("cannot be read"), std::string::npos) << refused;
    EXPECT_EQ(refused.find("has files"), std::string::npos) << refused;
    const auto files = CampaignFiles::create(out.string(), true, 0);
    EXPECT_TRUE(files.ok()) << files.error().message;
  }
  fs::permissions(out, fs::perms::owner_all);
}

}  // namespace campaign_files_test
}  // namespace grapevine
