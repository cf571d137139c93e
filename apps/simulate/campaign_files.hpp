// CampaignFiles: what a campaign writes to its folder, seeds.csv and campaign.json.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/record/files.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// The end of the run of one seed, which has failed where a check was violated.
struct SeedVerdict {
  std::vector<std::string> violations;
  std::string faults, hash;
  std::uint64_t events = 0;
  double virtual_seconds = 0;
};

// The folder is this campaign's alone as long as the object lasts. The files appear at commit(),
// both or none as far as that can be known; until then those of an earlier campaign stay.
class CampaignFiles {
 public:
  // Makes the folder where it is missing. `overwrite`: it may have files. `first`: the first seed.
  // Errors (bad_input): it has files, cannot be written to, or a run or campaign writes there.
  static Expected<CampaignFiles> create(const std::string& out, bool overwrite, std::int64_t first);

  // The rows of the table are in the order of the seeds: a row is kept until those before it are
  // there, and is then written. A failed write is an error of commit().
  void add(std::int64_t seed, const SeedVerdict& verdict);

  // REQUIRES: the seeds that were added are consecutive. Errors (io).
  Expected<void> commit(const std::string& figures);

 private:
  CampaignFiles(FolderLock lock, AtomicFile table, AtomicFile figures, std::int64_t first);

  FolderLock lock_;
  AtomicFile table_, figures_;
  std::int64_t next_;                         // the seed of the next row
  std::map<std::int64_t, std::string> kept_;  // rows of later seeds
};

}  // namespace grapevine
