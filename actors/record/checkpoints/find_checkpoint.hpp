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

}  // namespace grapevine
