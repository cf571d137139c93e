// NewFolder: files that appear in a folder together.
#pragma once
#include <filesystem>
#include <functional>
#include <utility>

#include "messages/expected.hpp"
#include "net/file_descriptor.hpp"

namespace grapevine {

// A folder under a temporary name, for what is to be in `target`. Without a commit nothing of it is
// left; what a killed process left there goes with the next one. Not thread-safe.
class NewFolder {
 public:
  // `replaces`: the target has files of the same names. Then it is exchanged as a whole, in one
  // step of the file system: at any moment it has all old files or all new ones. Its other files
  // stay, and its folders keep their owners and modes. Else the files are moved into the target,
  // which may be missing. Errors: io; or bad_input: the folder to be replaced is the current one;
  // an earlier replacement in two steps was interrupted.
  static Expected<NewFolder> make(const std::filesystem::path& target, bool replaces);
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;
  ~NewFolder();

  // Where to write.
  const std::filesystem::path& path() const { return path_; }
  // Exchanges two folders in one step. Returns 0 or errno.
  using Exchange = std::function<int(const std::filesystem::path&, const std::filesystem::path&)>;
  static int exchange(const std::filesystem::path& a, const std::filesystem::path& b);
  // Syncs to the disk, and puts the files in their place. False: in two steps, as on file systems
  // without the exchange of folders (NFS, CIFS): the target was missing for a moment. Errors (io):
  // the target is as it was, but where only the folder could not be synced.
  Expected<bool> commit(const Exchange& exchange_folders = exchange);

 private:
  NewFolder(std::filesystem::path path, FileDescriptor lock, std::filesystem::path target,
            bool replaces)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        target_(std::move(target)),
        replaces_(replaces) {}
  Expected<bool> replace(const Exchange& exchange_folders);
  Expected<void> replace_in_two_steps();

  std::filesystem::path path_;  // empty: moved from
  FileDescriptor lock_;         // on path_, until this process ends
  std::filesystem::path target_;
  bool replaces_;
};

}  // namespace grapevine
