#include "apps/zoo/data/file_bytes.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

namespace grapevine {
namespace {

// What is unpacked at once: as much as there is already, within these bounds.
constexpr std::size_t kLeastChunk = std::size_t{1} << 14;
constexpr std::size_t kMostChunk = std::size_t{1} << 24;

struct GzClose {
  void operator()(gzFile file) const { gzclose_r(file); }
};
using GzHandle = std::unique_ptr<gzFile_s, GzClose>;

Error too_large(const std::string& path, std::int64_t limit) {
  return bad_input(path + ": larger than " + std::to_string(limit) + " bytes");
}

Error cannot_read(const std::string& path) {
  return bad_input(path + ": cannot be read: " + std::strerror(errno));
}

// A device may have no end. A pipe has the one that its writer gives it.
Expected<void> check_no_device(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::is_character_file(status) && !std::filesystem::is_block_file(status))
    return {};
  return bad_input(path + ": is a device: give a file");
}

}  // namespace

Expected<Bytes> read_file(const std::string& path, std::int64_t limit) {
  if (auto file_or_pipe = check_no_device(path); !file_or_pipe) return file_or_pipe.error();
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  if (failure) return bad_input(path + ": cannot be read: " + failure.message());
  if (size > static_cast<std::uintmax_t>(limit)) return too_large(path, limit);
  std::ifstream file(path, std::ios::binary);
  if (!file) return cannot_read(path);
  Bytes bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (static_cast<std::uintmax_t>(file.gcount()) != size)
    return bad_input(path + ": ends at byte " + std::to_string(file.gcount()) + " of " +
                     std::to_string(size));
  return bytes;
}

Expected<Bytes> read_maybe_gzipped(const std::string& path, std::int64_t limit) {
  if (auto file_or_pipe = check_no_device(path); !file_or_pipe) return file_or_pipe.error();
  errno = 0;
  const GzHandle file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) return cannot_read(path);
  gzbuffer(file.get(), 1U << 16);
  Bytes bytes;
  int got = 1;
  while (got > 0) {
    const std::size_t filled = bytes.size();
    const std::size_t chunk = std::clamp(filled, kLeastChunk, kMostChunk);
    bytes.resize(filled + chunk);
    got = gzread(file.get(), bytes.data() + filled, static_cast<unsigned>(chunk));
    bytes.resize(filled + static_cast<std::size_t>(std::max(got, 0)));
    if (static_cast<std::int64_t>(bytes.size()) > limit) return too_large(path, limit);
  }
  // A stream that is cut off shows as an error only after its last byte.
  int status = Z_OK;
  const std::string reason = gzerror(file.get(), &status);
  if (status != Z_OK && status != Z_STREAM_END)
    return bad_input(path + ": the gzip stream breaks off or is damaged after " +
                     std::to_string(bytes.size()) + " unpacked bytes (" +
                     (reason.empty() ? "zlib error " + std::to_string(status) : reason) + ")");
  return bytes;
}

}  // namespace grapevine
