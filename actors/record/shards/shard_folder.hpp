// ShardFolder: where the states of other processes gather for a checkpoint that is being made.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "messages/expected.hpp"
#include "messages/frozen_tensor.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Of cut `cut` in a folder of checkpoints. The name is one of an unfinished checkpoint, which the
// next run in that folder removes.
std::filesystem::path shard_folder(const std::string& folder, std::int64_t cut);
// rank-0000.pt.
std::string rank_file(std::size_t rank);

// A process that shares the folder finds this text there.
Expected<void> write_proof(const std::filesystem::path& shards, const std::string& nonce);
bool has_proof(const std::filesystem::path& shards, const std::string& nonce);

// The files of the ranks whose processes do not share the folder, part after part. Not thread-safe.
class ShardFolder {
 public:
  // Makes the folder, with its proof, and forgets the one before it, which is removed. Errors (io).
  Expected<void> open(std::filesystem::path shards, const std::string& nonce);
  // Removes the folder, if there is one.
  void remove();
  const std::filesystem::path& path() const { return path_; }

  // Appends the bytes of `part` ([n] uint8), which begin at `offset` of `total`. With the last part
  // the file is synced, and has its name. Returns the bytes of the rank that are stored. Errors:
  // protocol: the part does not follow the one before it; io.
  Expected<std::int64_t> store(Rank rank, std::int64_t offset, std::int64_t total,
                               const FrozenTensor& part);

 private:
  std::filesystem::path path_;  // empty: none is open
  std::map<Rank, std::int64_t> stored_;
};

}  // namespace grapevine
