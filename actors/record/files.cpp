#include "actors/record/files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <functional>
#include <optional>
#include <streambuf>
#include <system_error>
#include <thread>
#include <utility>

#include "net/file_descriptor.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

std::string error_text(int error) {
  return std::error_code(error, std::generic_category()).message();
}

template <class Call>
auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int open_file(const fs::path& path, int flags) {
  return retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
}

// Pipes and some file systems cannot sync; they return EINVAL or ENOTSUP.
int sync_descriptor(int descriptor) {
  if (retry([&] { return ::fsync(descriptor); }) == 0) return 0;
  return errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

// The lock of a folder is that of flock(), for which there is no question: a process can only try
// to take it. F_OFD_GETLK is a question, about locks of its own kind: they exclude others only
// where the file is open for writing, as no folder is. So the holder has one of these, too, as a
// mark. NFS keeps both kinds on the host where they concern folders. Where the kernel does not know
// them (before Linux 3.15, some sandboxes: EINVAL), a question takes a shared lock for a moment,
// which is no holder's.
struct flock whole_file(short kind) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  return lock;
}

// At most as long as a question that lost its CPU may last.
constexpr int kMostTriesForLock = 100'000;

// Whether the folder is locked now. A shared lock can only be refused by a holder, others are of
// questions: they are waited for. The lock changes its kind in two steps, so the next one may fail.
bool take_lock(int descriptor) {
  const auto lock = [&](int kind) { return retry([&] { return ::flock(descriptor, kind); }) == 0; };
  for (int tries = 0; tries < kMostTriesForLock; ++tries) {
    if (lock(LOCK_EX | LOCK_NB)) return true;
    if (errno != EWOULDBLOCK || !lock(LOCK_SH | LOCK_NB)) return false;
    std::this_thread::yield();
  }
  errno = EWOULDBLOCK;
  return false;
}

fs::path folder_of(const fs::path& path) {
  const fs::path folder = path.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

constexpr char kTemporaryStart[] = ".grapevine-";
constexpr char kTemporaryEnd[] = ".tmp";

// The process in a name that make_beside() gives, ".grapevine-PID-N.tmp"; nothing for other names.
std::optional<pid_t> maker_of(const std::string& name) {
  const std::string start = kTemporaryStart, end = kTemporaryEnd;
  if (name.size() <= start.size() + end.size() || name.compare(0, start.size(), start) != 0 ||
      name.compare(name.size() - end.size(), end.size(), end) != 0)
    return std::nullopt;
  const char* first = name.data() + start.size();
  const char* last = name.data() + name.size() - end.size();
  pid_t process = 0;
  unsigned count = 0;
  const auto [dash, wrong] = std::from_chars(first, last, process);
  if (wrong != std::errc() || process <= 0 || dash == last || *dash != '-') return std::nullopt;
  const auto [stopped, error] = std::from_chars(dash + 1, last, count);
  if (error != std::errc() || stopped != last) return std::nullopt;
  return process;
}

// Calls `make` with names beside `path` until one is free; returns that name, or an empty path with
// errno set. Another host on a shared file system may have the same process id, so a taken name is
// no error.
fs::path make_beside(const fs::path& path, const std::function<int(const fs::path&)>& make) {
  static std::atomic<unsigned> counter{0};
  constexpr int kAttempts = 10000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // Without the final name: that may be as long as names can be.
    const std::string name = kTemporaryStart + std::to_string(::getpid()) + "-" +
                             std::to_string(counter++) + kTemporaryEnd;
    fs::path candidate = folder_of(path) / name;
    if (make(candidate) >= 0) return candidate;
    if (errno != EEXIST) return {};
  }
  return {};
}

// A buffered stream over a descriptor; std::ofstream offers no way to sync.
class DescriptorBuffer : public std::streambuf {
 public:
  explicit DescriptorBuffer(const FileDescriptor& descriptor) : descriptor_(descriptor) {
    setp(buffer_.data(), buffer_.data() + buffer_.size());
  }
  // errno of the first write that failed, 0 where none did.
  int error() const { return error_; }
  void forget_error() { error_ = 0; }

 protected:
  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    if (count < epptr() - pptr()) return std::streambuf::xsputn(bytes, count);
    return sync() == 0 && write_all(bytes, count) ? count : 0;
  }
  int sync() override {
    const bool written = write_all(pbase(), pptr() - pbase());
    setp(buffer_.data(), buffer_.data() + buffer_.size());
    return written ? 0 : -1;
  }

 private:
  bool write_all(const char* bytes, std::streamsize count) {
    while (error_ == 0 && count > 0) {
      const auto written =
          retry([&] { return ::write(descriptor_.get(), bytes, static_cast<std::size_t>(count)); });
      if (written < 0) error_ = errno;
      if (written > 0) {
        bytes += written;
        count -= written;
      }
    }
    return error_ == 0;
  }

  const FileDescriptor& descriptor_;
  int error_ = 0;
  std::array<char, 1 << 16> buffer_;
};

}  // namespace

Error file_error(const std::string& action, const fs::path& path, int number) {
  return {Errc::io,
          "cannot " + action + " '" + path.string() + "': " + error_text(number) +
              (number == ENOSPC || number == EDQUOT ? "; free some space or choose another "
                                                      "place"
               : number == EFBIG ? "; raise the limit on the size of files (ulimit -f)"
                                 : "; check the path and its rights")};
}

struct AtomicFile::Impl {
  fs::path path;       // as the user gave it, for messages
  fs::path target;     // the file that is replaced: links resolved
  fs::path temporary;  // equals target where that is written directly
  FileDescriptor descriptor;
  DescriptorBuffer buffer{descriptor};
  std::ostream stream{&buffer};
  off_t flushed = 0;  // bytes
  bool direct = false;
  bool spent = false;

  ~Impl() {
    if (!spent && !direct && !temporary.empty()) ::unlink(temporary.c_str());
  }
  Expected<void> open();
  Expected<void> open_temporary();
};

Expected<void> AtomicFile::Impl::open() {
  struct stat status {};
  target = path;
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return file_error("write", path, EISDIR);
  if (exists && !S_ISREG(status.st_mode)) {
    direct = true;
    temporary = path;
    descriptor.reset(open_file(path, O_WRONLY));
    if (descriptor.get() < 0) return file_error("write", path, errno);
    return {};
  }
  std::error_code missing;
  std::error_code error;
  if (fs::is_symlink(path, missing)) target = fs::weakly_canonical(path, error);
  if (error) return file_error("write", path, error.value());
  if (auto opened = open_temporary(); !opened) return opened;
  // The readers of the old file can read the new one; where that is refused (another owner) the
  // content matters more.
  if (exists) static_cast<void>(::fchmod(descriptor.get(), status.st_mode & 07777));
  return {};
}

Expected<void> AtomicFile::Impl::open_temporary() {
  if (!target.has_filename()) return file_error("write", path, path.empty() ? ENOENT : EISDIR);
  temporary = make_beside(target, [this](const fs::path& name) {
    descriptor.reset(open_file(name, O_WRONLY | O_CREAT | O_EXCL));
    return descriptor.get();
  });
  if (temporary.empty()) return file_error("write", path, errno);
  return {};
}

AtomicFile::AtomicFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AtomicFile::AtomicFile(AtomicFile&&) noexcept = default;
AtomicFile& AtomicFile::operator=(AtomicFile&&) noexcept = default;
AtomicFile::~AtomicFile() = default;

Expected<AtomicFile> AtomicFile::create(const fs::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  if (auto opened = impl->open(); !opened) return opened.error();
  return AtomicFile(std::move(impl));
}

std::ostream& AtomicFile::stream() { return impl_->stream; }

const fs::path& AtomicFile::temporary_path() const { return impl_->temporary; }

Expected<void> AtomicFile::flush() {
  Impl& file = *impl_;
  file.stream.flush();
  if (file.stream.good()) {
    file.flushed = ::lseek(file.descriptor.get(), 0, SEEK_CUR);
    return {};
  }
  const int error = file.buffer.error() != 0 ? file.buffer.error() : EIO;
  const bool cut = file.flushed >= 0 && ::ftruncate(file.descriptor.get(), file.flushed) == 0 &&
                   ::lseek(file.descriptor.get(), file.flushed, SEEK_SET) == file.flushed;
  if (cut) {
    file.buffer.forget_error();
    file.stream.clear();
  }
  return file_error("write", file.path, error);
}

Expected<void> AtomicFile::commit() {
  Impl& file = *impl_;
  if (file.spent) return Error{Errc::failed, "'" + file.path.string() + "' was committed already"};
  file.stream.flush();
  if (file.buffer.error() != 0) return file_error("write", file.path, file.buffer.error());
  if (file.stream.bad()) return file_error("write", file.path, EIO);
  if (const int error = sync_descriptor(file.descriptor.get()); error != 0) {
    return file_error("write", file.path, error);
  }
  if (!file.direct) {
    if (::rename(file.temporary.c_str(), file.target.c_str()) != 0) {
      return file_error("write", file.path, errno);
    }
    file.spent = true;  // the temporary name no longer exists
    return sync_directory(folder_of(file.target));
  }
  file.spent = true;
  return {};
}

bool AtomicFile::spent() const { return impl_->spent; }

Expected<void> sync_directory(const fs::path& path) {
  const FileDescriptor folder(open_file(path, O_RDONLY | O_DIRECTORY));
  if (folder.get() < 0 && errno == EACCES) return {};
  const int error = folder.get() < 0 ? errno : sync_descriptor(folder.get());
  if (error != 0) return file_error("sync the directory", path, error);
  return {};
}

Expected<void> write_file_atomically(const fs::path& path, std::string_view bytes) {
  auto file = AtomicFile::create(path);
  if (!file) return file.error();
  file->stream().write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return file->commit();
}

Expected<void> ensure_writable_directory(const fs::path& path) {
  const auto refused = [&](int error) {
    Error result = file_error("write to the directory", path, error);
    result.code = Errc::bad_input;
    return result;
  };
  if (path.empty()) return refused(ENOENT);
  std::error_code error;
  fs::create_directories(path, error);
  // A trailing slash or a link to a directory is reported as "not created", which is no error.
  if (error) return refused(error.value());
  if (!fs::is_directory(path, error)) return refused(ENOTDIR);
  FileDescriptor probe;
  const fs::path name = make_beside(path / "probe", [&](const fs::path& candidate) {
    probe.reset(open_file(candidate, O_WRONLY | O_CREAT | O_EXCL));
    return probe.get();
  });
  if (name.empty()) return refused(errno);
  const int write_error = retry([&] { return ::write(probe.get(), "x", 1); }) == 1 ? 0 : errno;
  ::unlink(name.c_str());
  if (write_error != 0) return refused(write_error);
  return {};
}

Expected<void> replace_symlink_atomically(const fs::path& target, const fs::path& link) {
  const fs::path temporary = make_beside(
      link, [&](const fs::path& name) { return ::symlink(target.c_str(), name.c_str()); });
  if (temporary.empty()) return file_error("make the link", link, errno);
  if (::rename(temporary.c_str(), link.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return file_error("make the link", link, error);
  }
  if (auto synced = sync_directory(folder_of(link)); !synced) return synced;
  return {};
}

Expected<FolderLock> lock_folder(const fs::path& folder) {
  const auto held =
      std::make_shared<const FileDescriptor>(open_file(folder, O_RDONLY | O_DIRECTORY));
  if (held->get() < 0) return FolderLock();
  if (!take_lock(held->get())) {
    if (errno != EWOULDBLOCK) return FolderLock();
    return bad_input(folder.string() + ": another run writes there at this moment");
  }
  struct flock mark = whole_file(F_RDLCK);
  static_cast<void>(retry([&] { return ::fcntl(held->get(), F_OFD_SETLK, &mark); }));
  return FolderLock(held);
}

bool is_locked(const fs::path& folder) {
  const FileDescriptor opened(open_file(folder, O_RDONLY | O_DIRECTORY));
  if (opened.get() < 0) return false;
  struct flock asked = whole_file(F_WRLCK);
  if (retry([&] { return ::fcntl(opened.get(), F_OFD_GETLK, &asked); }) == 0)
    return asked.l_type != F_UNLCK;
  return retry([&] { return ::flock(opened.get(), LOCK_SH | LOCK_NB); }) != 0 &&
         errno == EWOULDBLOCK;
}

void remove_stale_files(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const auto maker = maker_of(entry.path().filename().string());
    // Whether a process of that number runs; that of another user counts, too. Not this one: in a
    // container each process of a row has the same number.
    const bool runs = maker && *maker != ::getpid() && (::kill(*maker, 0) == 0 || errno == EPERM);
    if (maker && !runs && entry.is_regular_file(ignored)) stale.push_back(entry.path());
  }
  for (const fs::path& path : stale) fs::remove(path, ignored);
}

}  // namespace grapevine
