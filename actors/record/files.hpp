// Files that are either whole or not there: written beside their final name, synced, renamed.
// Every error gives the path and the error of the operating system. No function throws.
#pragma once
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

#include "messages/expected.hpp"

namespace grapevine {

// A file that appears under its name at commit() and not before. Without a commit nothing is left
// behind, and a file that had the name keeps its content. A symbolic link is followed: the file
// that it points to is replaced. A device, pipe or socket cannot be replaced: it is written
// directly.
//
// Not thread-safe. A moved-from object may only be destroyed or assigned to.
class AtomicFile {
 public:
  // Errors (io): the folder is missing or not writable, the name is a directory.
  static Expected<AtomicFile> create(const std::filesystem::path& path);
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) noexcept;
  ~AtomicFile();

  // Where to write. A failed write shows here as badbit, and as an error of commit().
  std::ostream& stream();
  // For writers that want a name. They may truncate and fill that file, but not replace it, and the
  // stream must not be used then.
  const std::filesystem::path& temporary_path() const;

  // Where a write has failed since the last flush, the file is cut back to what that one had
  // written, later data is lost, and the stream accepts more. Errors (io): exactly that.
  Expected<void> flush();

  // Flushes, syncs to the disk, renames, syncs the folder. Afterwards the object is spent: a second
  // commit is an error. Errors (io): a write failed (also an earlier one, e.g. no space left); the
  // folder could not be synced.
  Expected<void> commit();
  // Whether the file has its name: also after a commit() that could only not sync the folder.
  bool spent() const;

 private:
  struct Impl;
  explicit AtomicFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// "cannot <action> '<path>': <what the system said>; <what to do>" (io). `number`: an errno.
Error file_error(const std::string& action, const std::filesystem::path& path, int number);

// The whole content at once, with the guarantees of AtomicFile.
Expected<void> write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// Makes the directory and its parents where they are missing, and tests with a temporary file
// that files can be written there. Errors (bad_input: the user chose the path) name the path.
Expected<void> ensure_writable_directory(const std::filesystem::path& path);

// Removes from the folder itself the files that an AtomicFile of an ended process of this machine
// has left there: those names only. A file that cannot be removed stays. REQUIRES: this process has
// no AtomicFile there.
void remove_stale_files(const std::filesystem::path& folder);

// A folder's lock ends with its last copy, or with this process.
using FolderLock = std::shared_ptr<const void>;
// Excludes other users of the same folder. Null where the file system has no locks. Does not
// wait. Errors (bad_input): this process or another holds it.
Expected<FolderLock> lock_folder(const std::filesystem::path& folder);
// Whether a process holds it. Keeps no process from taking it. False where the file system has no
// locks.
bool is_locked(const std::filesystem::path& folder);

// Syncs the directory, so that the names in it survive a power failure. A directory that may be
// written but not read is left to the system. Errors (io).
Expected<void> sync_directory(const std::filesystem::path& path);

// Makes `link` point to `target` (as written: relative to the folder of `link`), in place of an
// older link or file. Readers see the old link or the new one. Errors (io): `link` is a directory,
// …
Expected<void> replace_symlink_atomically(const std::filesystem::path& target,
                                          const std::filesystem::path& link);

}  // namespace grapevine
