#include "apps/train/row_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "actors/record/files.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kWriteAt = std::size_t{1} << 16;  // bytes: at most so many wait

template <class Call>
auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

Expected<RowFile> RowFile::open(const std::filesystem::path& path) {
  const int descriptor =
      retry([&] { return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666); });
  if (descriptor < 0) return file_error("write", path, errno);
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  return RowFile(path, descriptor, regular ? static_cast<std::int64_t>(status.st_size) : -1);
}

RowFile::RowFile(RowFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      waiting_(std::move(other.waiting_)),
      refused_(other.refused_),
      lost_(other.lost_) {}

RowFile::~RowFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RowFile::add(std::string_view row) {
  if (waiting_.size() + row.size() > kLongestBacklog) {
    ++lost_;
    return;
  }
  waiting_ += row;
  // Where the system has refused, the next attempt is the caller's.
  if (waiting_.size() >= kWriteAt && !refused_) static_cast<void>(write());
}

Expected<void> RowFile::write() {
  std::size_t done = 0;
  while (done < waiting_.size()) {
    const auto written =
        retry([&] { return ::write(descriptor_, waiting_.data() + done, waiting_.size() - done); });
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  const int number = errno;
  refused_ = done < waiting_.size();
  if (refused_) {
    // Readers see whole rows: the written part of the last one is removed.
    const std::size_t end = done == 0 ? std::string::npos : waiting_.rfind('\n', done - 1);
    const std::size_t whole = end == std::string::npos ? 0 : end + 1;
    const bool cut = size_ >= 0 && whole < done &&
                     ::ftruncate(descriptor_, size_ + static_cast<std::int64_t>(whole)) == 0;
    if (whole == done || cut) done = whole;
  }
  if (size_ >= 0) size_ += static_cast<std::int64_t>(done);
  waiting_.erase(0, done);
  if (refused_) return file_error("write", path_, number);
  return {};
}

Expected<void> RowFile::sync() {
  if (auto written = write(); !written) return written;
  if (retry([&] { return ::fdatasync(descriptor_); }) == 0 || errno == EINVAL || errno == ENOTSUP)
    return {};
  return file_error("write", path_, errno);
}

std::int64_t RowFile::take_lost() { return std::exchange(lost_, 0); }

}  // namespace grapevine
