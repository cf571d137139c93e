// EventFile: one of TensorBoard's files of scalars.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

// CRC-32C (Castagnoli), as RFC 3720, appendix B.4 defines it.
std::uint32_t crc32c(std::string_view bytes);

// A file of TFRecords, each a protobuf Event: u64 length, CRC of these 8 bytes, the event, its CRC;
// little-endian, CRCs masked. Grows at the end only, by whole records: readers follow it while it
// is written. Holds no open file between calls. Not thread-safe.
class EventFile {
 public:
  // A name per scalar, e.g. "train/loss". NaN: not measured, left out.
  using Scalars = std::vector<std::pair<const char*, double>>;

  // Events of earlier files in the folder of `path` count up to `first_step`. Writes nothing yet.
  EventFile(std::filesystem::path path, double wall_time, std::int64_t first_step);

  void add(double wall_time, std::int64_t step, const Scalars& scalars);

  // Appends the events since the last flush and makes the folder where it is missing. Errors
  // (io) name the file: it keeps whole records alone, and the others wait for the next flush, up to
  // kMostKept bytes of them; later ones are left out.
  Expected<void> flush();

  static constexpr std::size_t kMostKept = std::size_t{1} << 18;

 private:
  bool cut_back() const;

  std::filesystem::path path_;
  std::string pending_;
  std::optional<std::uintmax_t> whole_;  // bytes of whole records in the file, once it is used
  bool failed_ = false;                  // the last write
};

}  // namespace grapevine
