#include "gpu/replicas/gpu_claims.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

namespace grapevine {
namespace {

constexpr Duration kPoll = std::chrono::milliseconds(20);
constexpr std::size_t kMostBytes = 65536;  // of a claim; one of 64 GPUs has 3 KB
const std::string kPrefix = "claim-";

Error io_error(const std::string& what) { return {Errc::io, what + ": " + std::strerror(errno)}; }

// The folder of another user could show us anything.
Expected<void> own_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return io_error("cannot make " + folder);
  struct stat found {};
  if (::lstat(folder.c_str(), &found) != 0) return io_error(folder);
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 022) != 0)
    return Error{Errc::io, folder + " is not a folder that this user alone writes to"};
  return {};
}

struct Claim {
  std::string run;
  std::string process;
  std::vector<std::string> ids;
};

std::optional<Claim> parse(const std::string& text) {
  std::istringstream lines(text);
  Claim claim;
  if (!std::getline(lines, claim.run) || !std::getline(lines, claim.process)) return {};
  for (std::string id; std::getline(lines, id);) claim.ids.push_back(id);
  return claim;
}

// Nothing where its process has ended: then the file is removed. Readers share their lock, so that
// none takes another for the process.
std::optional<Claim> read_claim(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return {};
  std::optional<Claim> claim;
  if (::flock(file, LOCK_SH | LOCK_NB) == 0) {
    ::unlink(path.c_str());
  } else if (errno == EWOULDBLOCK) {
    std::string text(kMostBytes, '\0');
    const ssize_t size = ::pread(file, text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    claim = parse(text);
  }
  ::close(file);
  return claim;
}

Expected<std::vector<Claim>> read_claims(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (!entries) return io_error(folder);
  std::vector<Claim> claims;
  while (const dirent* entry = ::readdir(entries.get())) {  // NOLINT(concurrency-mt-unsafe)
    const std::string name = entry->d_name;
    if (name.rfind(kPrefix, 0) != 0) continue;
    if (auto claim = read_claim(folder + "/" + name)) claims.push_back(*std::move(claim));
  }
  return claims;
}

bool write_all(int file, const std::string& text) {
  return ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

std::string shared_gpu(const std::vector<std::string>& own, const std::vector<std::string>& all) {
  for (const std::string& id : own)
    if (!id.empty() &&
        std::count(all.begin(), all.end(), id) > std::count(own.begin(), own.end(), id))
      return id;
  return {};
}

std::string gpu_claims_folder() {
  const bool in_memory = ::access("/dev/shm", W_OK | X_OK) == 0;
  return std::string(in_memory ? "/dev/shm" : "/tmp") + "/grapevine-gpus-" +
         std::to_string(::geteuid());
}

// Under its name only when it is whole and locked, so that no reader takes it for a dead one's.
Expected<GpuClaims> GpuClaims::post(const std::string& folder, const std::string& run, int process,
                                    const std::vector<std::string>& ids) {
  if (auto own = own_folder(folder); !own) return own.error();
  GpuClaims claims(folder, run);
  std::string name = folder + "/new-XXXXXX";
  claims.file_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (claims.file_ < 0) return io_error("cannot write to " + folder);
  claims.path_ = name;
  std::string text = run + "\n" + std::to_string(process) + "\n";
  for (const std::string& id : ids) text += id + "\n";
  const std::string final_name = folder + "/" + kPrefix + name.substr(name.size() - 6);
  if (text.size() > kMostBytes || ::flock(claims.file_, LOCK_EX | LOCK_NB) != 0 ||
      !write_all(claims.file_, text) || ::rename(name.c_str(), final_name.c_str()) != 0)
    return io_error("cannot write to " + folder);
  claims.path_ = final_name;
  return claims;
}

GpuClaims::GpuClaims(GpuClaims&& other) noexcept
    : folder_(std::move(other.folder_)),
      run_(std::move(other.run_)),
      path_(std::exchange(other.path_, {})),
      file_(std::exchange(other.file_, -1)) {}

GpuClaims::~GpuClaims() {
  if (!path_.empty()) ::unlink(path_.c_str());
  if (file_ >= 0) ::close(file_);
}

Expected<std::vector<std::string>> GpuClaims::gather(int processes, Duration timeout) const {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const auto claims = read_claims(folder_);
    if (!claims) return claims.error();
    std::set<std::string> here;
    std::vector<std::string> ids;
    for (const Claim& claim : *claims) {
      if (claim.run == run_) here.insert(claim.process);
      ids.insert(ids.end(), claim.ids.begin(), claim.ids.end());
    }
    if (static_cast<int>(here.size()) >= processes) return ids;
    if (std::chrono::steady_clock::now() - start > timeout)
      return Error{Errc::timeout, std::to_string(here.size()) + " of the " +
                                      std::to_string(processes) +
                                      " processes of this machine reported the GPUs they use"};
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace grapevine
