#include "actors/record/shards/shard_folder.hpp"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "actors/record/files.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr char kProof[] = "proof";

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

Expected<void> append(const fs::path& path, const FrozenTensor& part, bool first, bool last) {
  const File file(std::fopen(path.c_str(), first ? "wb" : "ab"), &std::fclose);
  if (!file) return file_error("write", path, errno);
  const std::size_t bytes = part.nbytes();
  if (std::fwrite(part.raw(), 1, bytes, file.get()) != bytes || std::fflush(file.get()) != 0)
    return file_error("write", path, errno);
  if (last && ::fsync(::fileno(file.get())) != 0) return file_error("write", path, errno);
  return {};
}

}  // namespace

fs::path shard_folder(const std::string& folder, std::int64_t cut) {
  return fs::path(folder) / fmt::format(".writing-shards-{}", cut);
}

std::string rank_file(std::size_t rank) { return fmt::format("rank-{:04}.pt", rank); }

Expected<void> write_proof(const fs::path& shards, const std::string& nonce) {
  return write_file_atomically(shards / kProof, nonce);
}

bool has_proof(const fs::path& shards, const std::string& nonce) {
  std::ifstream file(shards / kProof, std::ios::binary);
  const std::string found{std::istreambuf_iterator<char>(file), {}};
  return file.is_open() && found == nonce;
}

Expected<void> ShardFolder::open(fs::path shards, const std::string& nonce) {
  remove();
  std::error_code error;
  fs::remove_all(shards, error);
  fs::create_directories(shards, error);
  if (error) return Error{Errc::io, shards.string() + ": cannot be made: " + error.message()};
  path_ = std::move(shards);
  return write_proof(path_, nonce);
}

void ShardFolder::remove() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  path_.clear();
  stored_.clear();
}

Expected<std::int64_t> ShardFolder::store(Rank rank, std::int64_t offset, std::int64_t total,
                                          const FrozenTensor& part) {
  std::int64_t& stored = stored_[rank];
  const bool fits = !path_.empty() && part.defined() && part.dtype() == at::kByte &&
                    part.sizes().size() == 1 && part.numel() > 0 && offset == stored &&
                    part.numel() <= total - offset;
  if (!fits)
    return Error{
        Errc::protocol,
        fmt::format("a part of the state of rank {} that does not follow the one before it", rank)};
  const bool last = offset + part.numel() == total;
  const fs::path name = path_ / rank_file(static_cast<std::size_t>(rank));
  const fs::path growing = name.string() + ".part";
  if (auto written = append(growing, part, offset == 0, last); !written) return written.error();
  stored += part.numel();
  if (last) {
    std::error_code error;
    fs::rename(growing, name, error);
    if (error) return Error{Errc::io, name.string() + ": cannot be renamed: " + error.message()};
  }
  return stored;
}

}  // namespace grapevine
