// Which checkpoint a path of a user means.
#pragma once
#include <string>

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

// `found`, of checkpoint_at(), by the name of the checkpoint itself: a run that writes there passes
// its links on to newer ones.
std::string behind_link(const std::string& found);

// What read(folder) makes of the checkpoint that `path` means; `folder` is empty where there is
// none. A run that writes there removes old checkpoints, perhaps amid their reading: where
// read() returns an error, or false, and another checkpoint is meant by then, that one is read.
template <class Read>
auto read_newest(const std::string& path, Read read) {
  constexpr int kMostAttempts = 100;
  std::string failed;
  for (int attempt = 1;; ++attempt) {
    const std::string folder = behind_link(checkpoint_at(path));
    auto result = read(folder);
    if (result || folder == failed || attempt == kMostAttempts) return result;
    failed = folder;
  }
}

}  // namespace grapevine
