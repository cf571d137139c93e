// NewFolder: files that appear in a folder together.
#pragma once
#include <filesystem>
#include <utility>

#include "messages/expected.hpp"

namespace grapevine {

// A folder under a temporary name, for what is to be in `target`. Without a commit nothing of it is
// left. Not thread-safe.
class NewFolder {
 public:
  // `replaces`: the target has files of the same names. Then it is exchanged as a whole, in one
  // step of the file system: at any moment it has all old files or all new ones, and its other
  // files stay. Else the files are moved into the target, which may be missing. Errors: io; or
  // bad_input: the folder to be replaced is the current one.
  static Expected<NewFolder> make(const std::filesystem::path& target, bool replaces);
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;
  ~NewFolder();

  // Where to write.
  const std::filesystem::path& path() const { return path_; }
  // Syncs to the disk, and puts the files in their place. Errors (io): the target is as it was, but
  // where only the folder could not be synced.
  Expected<void> commit();

 private:
  NewFolder(std::filesystem::path path, std::filesystem::path target, bool replaces)
      : path_(std::move(path)), target_(std::move(target)), replaces_(replaces) {}
  Expected<void> exchange();

  std::filesystem::path path_;  // empty: moved from
  std::filesystem::path target_;
  bool replaces_;
};

}  // namespace grapevine
