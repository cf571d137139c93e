// Which checkpoint a path of a user means.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

namespace grapevine {

// Prefix of the name of a checkpoint that is being written.
inline constexpr char kUnfinishedPrefix[] = ".writing-";

// The folder of the checkpoint that `path` means: itself, the latest one of a folder of
// checkpoints, or that of a run's --out folder. Where `latest` is missing, because a copy has left
// links out, or points to nothing, because a process was killed while checkpoints changed their
// names: the newest one that is complete, or, where none is, the newest. Of a copy this is the one
// with the highest step: checkpoints do not record when they were written, so that those of a run
// that had continued from an earlier step cannot be told apart. Empty: there is none.
std::string checkpoint_at(const std::string& path);

// A checkpoint by its own name, not that of a link, which a run that writes there passes on to
// newer ones. Another one may take the name: `file` tells them apart.
struct NamedCheckpoint {
  std::string folder;      // empty: there is none
  std::uint64_t file = 0;  // the number of its job.json in the file system
  bool operator==(const NamedCheckpoint& other) const {
    return folder == other.folder && file == other.file;
  }
};
// The one that checkpoint_at(path) means.
NamedCheckpoint named_checkpoint_at(const std::string& path);

// What read(folder) makes of the checkpoint that `path` means; `folder` is empty where there is
// none. A run that writes there removes old checkpoints, perhaps amid their reading: where
// read() returns an error, or false, and another checkpoint is meant by then, that one is read.
template <class Read>
auto read_newest(const std::string& path, Read read) {
  constexpr int kMostAttempts = 100;
  NamedCheckpoint meant = named_checkpoint_at(path);
  for (int attempt = 1;; ++attempt) {
    auto result = read(meant.folder);
    if (result || attempt == kMostAttempts) return result;
    NamedCheckpoint now = named_checkpoint_at(path);
    if (now == meant) return result;
    meant = std::move(now);
  }
}

}  // namespace grapevine
