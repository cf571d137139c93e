#include "apps/node/new_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
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
constexpr char kNameStart[] = ".grapevine-", kNameEnd[] = ".tmp";
constexpr int kMostAttempts = 10;

// Without a slash at its end, and as far as it exists without symbolic links.
fs::path resolved(const fs::path& folder) {
  std::error_code error;
  fs::path found = fs::weakly_canonical(folder, error);
  if (error) found = folder.lexically_normal();
  return found.has_filename() ? found : found.parent_path();
}

fs::path beside(const fs::path& folder) {
  return folder.has_parent_path() ? folder.parent_path() : fs::path(".");
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

// The folder gets the owner and the mode of the other one.
Expected<void> take_rights(const fs::path& from, const fs::path& folder) {
  struct stat old {};
  if (::stat(from.c_str(), &old) != 0 || ::chown(folder.c_str(), old.st_uid, old.st_gid) != 0 ||
      ::chmod(folder.c_str(), old.st_mode & 07777U) != 0)
    return file_error("replace", from, errno);
  return {};
}

// Files that the other folder has alone are in both then, the same and not copies.
Expected<void> link_others(const fs::path& from, const fs::path& to) {
  const auto entries = entries_of(from);
  if (!entries) return entries.error();
  for (const fs::directory_entry& entry : *entries) {
    const fs::path there = to / entry.path().filename();
    std::error_code failed;
    if (is_folder(entry.path())) {
      if (!is_there(there)) fs::create_directory(there, failed);
      if (failed) return file_error("keep", entry.path(), failed.value());
      if (auto linked = link_others(entry.path(), there); !linked) return linked;
      if (auto taken = take_rights(entry.path(), there); !taken) return taken;
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

// A folder of a process that lives. Nothing where the file system locks no folders.
FileDescriptor lock_of(const fs::path& folder) {
  FileDescriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() >= 0 && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) lock.reset();
  return lock;
}

// What killed processes have left.
void clear_abandoned(const fs::path& folder) {
  const auto entries = entries_of(folder);
  if (!entries) return;
  for (const fs::directory_entry& entry : *entries) {
    const std::string name = entry.path().filename().string();
    const std::size_t length = sizeof kNameStart - 1 + 2 * kNameBytes + sizeof kNameEnd - 1;
    const bool ours = name.size() == length && name.rfind(kNameStart, 0) == 0 &&
                      name.compare(length - sizeof kNameEnd + 1, length, kNameEnd) == 0;
    std::error_code ignored;
    if (!ours || !is_folder(entry.path())) continue;
    if (const FileDescriptor lock = lock_of(entry.path()); lock.get() >= 0)
      fs::remove_all(entry.path(), ignored);
  }
}

// Of the old folder, between two steps.
fs::path old_name(fs::path target) { return target += ".grapevine-old"; }

Expected<void> check_old(const fs::path& target) {
  const fs::path old = old_name(target);
  if (!is_there(old)) return {};
  if (is_there(target))
    return bad_input("'" + old.string() +
                     "' exists, and is needed to replace the folder: remove or rename it");
  return bad_input("'" + target.string() + "' was being replaced, which was interrupted: rename '" +
                   old.string() + "' to it, then try again");
}

}  // namespace

Expected<NewFolder> NewFolder::make(const fs::path& target, bool replaces) {
  const fs::path place = resolved(target);
  std::error_code error;
  if (replaces && is_within(fs::current_path(error), place))
    return bad_input("'" + target.string() +
                     "' is the current folder, which cannot be replaced as a whole: change to "
                     "another folder first");
  if (!replaces && !is_there(place))
    if (auto checked = check_old(place); !checked) return checked.error();
  const bool exists = fs::is_directory(place, error);
  if (!exists && is_there(place))
    return bad_input("'" + target.string() + "' is no folder: give the name of one");
  const fs::path where = exists && !replaces ? place : beside(place);
  fs::create_directories(where, error);
  if (error) return file_error("make", where, error.value());
  clear_abandoned(beside(place));
  if (exists) clear_abandoned(place);
  // Beside the target, so that it can be renamed. Another process may clear it before it is locked.
  for (int attempt = 1;; ++attempt) {
    const fs::path path = where / (kNameStart + random_hex(kNameBytes) + kNameEnd);
    // A folder that replaces another one is closed to others until it has the rights of that one.
    if (::mkdir(path.c_str(), replaces ? 0700 : 0777) != 0) return file_error("make", path, errno);
    FileDescriptor lock = lock_of(path);
    if (is_there(path) || attempt == kMostAttempts)
      return NewFolder(path, std::move(lock), place, replaces);
  }
}

int NewFolder::exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0 ? 0 : errno;
}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      lock_(std::move(other.lock_)),
      target_(std::move(other.target_)),
      replaces_(other.replaces_) {}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Expected<bool> NewFolder::commit(const Exchange& exchange_folders) {
  if (replaces_)
    if (auto linked = link_others(target_, path_); !linked) return linked.error();
  if (auto synced = sync_all(path_); !synced) return synced.error();
  if (replaces_) return replace(exchange_folders);
  std::error_code error;
  if (!fs::exists(target_, error)) {
    if (::rename(path_.c_str(), target_.c_str()) != 0) return file_error("write", target_, errno);
    if (auto synced = sync_directory(beside(target_)); !synced) return synced.error();
    return true;
  }
  std::vector<fs::path> moved;
  const auto done = move_into(path_, target_, moved);
  if (done) return true;
  for (const fs::path& path : moved) fs::remove_all(path, error);
  return done.error();
}

// Afterwards `path_` is the old folder, which goes with this object.
Expected<bool> NewFolder::replace(const Exchange& exchange_folders) {
  if (auto taken = take_rights(target_, path_); !taken) return taken.error();
  const int error = exchange_folders(path_, target_);
  const bool unknown = error == EINVAL || error == ENOSYS || error == ENOTSUP;  // NFS, CIFS
  if (error != 0 && !unknown) return file_error("replace", target_, error);
  if (unknown)
    if (auto replaced = replace_in_two_steps(); !replaced) return replaced.error();
  if (auto synced = sync_directory(beside(target_)); !synced) return synced.error();
  return !unknown;
}

// Under a name that no other call clears, the old folder survives the death of this process.
Expected<void> NewFolder::replace_in_two_steps() {
  const fs::path old = old_name(target_);
  if (auto checked = check_old(target_); !checked) return checked;
  if (::rename(target_.c_str(), old.c_str()) != 0) return file_error("replace", target_, errno);
  if (::rename(path_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    ::rename(old.c_str(), target_.c_str());
    return file_error("replace", target_, error);
  }
  path_ = old;
  return {};
}

}  // namespace grapevine
