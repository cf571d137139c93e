#include "apps/node/new_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "actors/record/files.hpp"
#include "net/file_descriptor.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNameBytes = 8;

// Without a slash at its end, and as far as it exists without symbolic links.
fs::path resolved(const fs::path& folder) {
  std::error_code error;
  fs::path found = fs::weakly_canonical(folder, error);
  if (error) found = folder.lexically_normal();
  return found.has_filename() ? found : found.parent_path();
}

bool is_within(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

// What is in the folder itself. Errors (io).
Expected<std::vector<fs::directory_entry>> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    entries.push_back(*at);
  if (error) return file_error("read", folder, error.value());
  return entries;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(path, ignored));
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

Expected<void> sync_all(const fs::path& folder) {
  const auto entries = entries_of(folder);
  if (!entries) return entries.error();
  for (const fs::directory_entry& entry : *entries) {
    std::error_code ignored;
    if (is_folder(entry.path())) {
      if (auto synced = sync_all(entry.path()); !synced) return synced;
    } else if (!entry.is_symlink(ignored) && entry.is_regular_file(ignored)) {
      const FileDescriptor file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
      if (file.get() < 0 || ::fsync(file.get()) != 0)
        return file_error("write", entry.path(), errno);
    }
  }
  return sync_directory(folder);
}

// Files that the other folder has alone are in both then, the same and not copies.
Expected<void> link_others(const fs::path& from, const fs::path& to) {
  const auto entries = entries_of(from);
  if (!entries) return entries.error();
  for (const fs::directory_entry& entry : *entries) {
    const fs::path there = to / entry.path().filename();
    std::error_code failed;
    if (is_folder(entry.path())) {
      if (!is_there(there)) fs::create_directory(there, entry.path(), failed);
      if (failed) return file_error("keep", entry.path(), failed.value());
      if (auto linked = link_others(entry.path(), there); !linked) return linked;
    } else if (!is_there(there)) {
      entry.is_symlink(failed) ? fs::copy_symlink(entry.path(), there, failed)
                               : fs::create_hard_link(entry.path(), there, failed);
    }
    if (failed) return file_error("keep", entry.path(), failed.value());
  }
  return {};
}

// Renames what is in `from`, folder by folder; `moved` receives the new names.
Expected<void> move_into(const fs::path& from, const fs::path& to, std::vector<fs::path>& moved) {
  const auto entries = entries_of(from);
  if (!entries) return entries.error();
  for (const fs::directory_entry& entry : *entries) {
    const fs::path there = to / entry.path().filename();
    std::error_code ignored;
    if (is_folder(entry.path()) && fs::is_directory(there, ignored)) {
      if (auto inner = move_into(entry.path(), there, moved); !inner) return inner;
      continue;
    }
    if (::rename(entry.path().c_str(), there.c_str()) != 0)
      return file_error("write", there, errno);
    moved.push_back(there);
  }
  return sync_directory(to);
}

}  // namespace

Expected<NewFolder> NewFolder::make(const fs::path& target, bool replaces) {
  const fs::path place = resolved(target);
  std::error_code error;
  if (replaces && is_within(fs::current_path(error), place))
    return bad_input("'" + target.string() +
                     "' is the current folder, which cannot be replaced as a whole: change to "
                     "another folder first");
  const bool exists = fs::is_directory(place, error);
  const fs::path beside = place.has_parent_path() ? place.parent_path() : fs::path(".");
  const fs::path where = exists && !replaces ? place : beside;
  fs::create_directories(where, error);
  if (error) return file_error("make", where, error.value());
  // Beside the target, so that it can be renamed.
  const fs::path path = where / (".grapevine-" + random_hex(kNameBytes) + ".tmp");
  if (::mkdir(path.c_str(), 0777) != 0) return file_error("make", path, errno);
  return NewFolder(path, place, replaces);
}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      target_(std::move(other.target_)),
      replaces_(other.replaces_) {}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Expected<void> NewFolder::commit() {
  if (replaces_)
    if (auto linked = link_others(target_, path_); !linked) return linked;
  if (auto synced = sync_all(path_); !synced) return synced;
  if (replaces_) return exchange();
  std::error_code error;
  if (!fs::exists(target_, error)) {
    if (::rename(path_.c_str(), target_.c_str()) != 0) return file_error("write", target_, errno);
    return sync_directory(target_.parent_path().empty() ? "." : target_.parent_path());
  }
  std::vector<fs::path> moved;
  auto done = move_into(path_, target_, moved);
  if (!done)
    for (const fs::path& path : moved) fs::remove_all(path, error);
  return done;
}

// Afterwards `path_` is the old folder, which goes with this object.
Expected<void> NewFolder::exchange() {
  struct stat old {};
  if (::stat(target_.c_str(), &old) != 0 || ::chmod(path_.c_str(), old.st_mode & 07777U) != 0 ||
      ::chown(path_.c_str(), old.st_uid, old.st_gid) != 0)
    return file_error("replace", target_, errno);
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno == EINVAL || errno == ENOSYS)  // NFS, CIFS
      return Error{Errc::io, "cannot replace '" + target_.string() +
                                 "' as a whole: its file system exchanges no folders; name a "
                                 "folder that does not exist, and rename it"};
    return file_error("replace", target_, errno);
  }
  return sync_directory(target_.parent_path().empty() ? "." : target_.parent_path());
}

}  // namespace grapevine
