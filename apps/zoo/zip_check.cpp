#include "apps/zoo/zip_check.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "messages/text/control_characters.hpp"

namespace grapevine {
namespace {

// The records of PKWARE's APPNOTE.TXT: signatures, and the sizes of the parts that are always
// there.
constexpr std::uint64_t kEntry = 0x04034b50, kEntrySize = 30;
constexpr std::uint64_t kListed = 0x02014b50, kListedSize = 46;
constexpr std::uint64_t kEnd = 0x06054b50, kEndSize = 22;
constexpr std::uint64_t kEnd64 = 0x06064b50, kEnd64Size = 56;
constexpr std::uint64_t kLocator64 = 0x07064b50, kLocator64Size = 20;
constexpr std::uint64_t kLongestComment = 0xffff;
// What does not fit into a field is in another one, of 64 bits.
constexpr std::uint64_t kElsewhere16 = 0xffff, kElsewhere32 = 0xffffffff;
constexpr std::uint64_t kExtra64 = 1;  // the kind of the field that has it

class ZipBytes {
 public:
  explicit ZipBytes(const Bytes& bytes) : bytes_(bytes) {}

  std::uint64_t size() const { return bytes_.size(); }
  const std::uint8_t* at(std::uint64_t place) const { return bytes_.data() + place; }
  bool has(std::uint64_t place, std::uint64_t length) const {
    return place <= size() && length <= size() - place;
  }
  // Little-endian; 0 behind the end.
  std::uint64_t number(std::uint64_t place, std::uint64_t width) const {
    std::uint64_t value = 0;
    if (!has(place, width)) return 0;
    for (std::uint64_t i = width; i > 0; --i) value = value << 8U | *at(place + i - 1);
    return value;
  }

 private:
  const Bytes& bytes_;
};

struct ZipDirectory {
  std::uint64_t begin = 0, entries = 0;
};

struct ZipEntry {
  std::string name;
  std::uint64_t place = 0, size = 0;  // of the entry's own header; of its bytes in the archive
  std::uint64_t crc = 0;
  bool stored = false;
  std::uint64_t next = 0;  // the place of the next one in the directory
};

std::optional<ZipDirectory> find_directory(const ZipBytes& zip) {
  if (zip.size() < kEndSize) return std::nullopt;
  const std::uint64_t last = zip.size() - kEndSize;
  std::uint64_t end = last;
  while (zip.number(end, 4) != kEnd) {
    if (end == 0 || last - end == kLongestComment) return std::nullopt;
    --end;
  }
  ZipDirectory directory{zip.number(end + 16, 4), zip.number(end + 10, 2)};
  if (directory.begin != kElsewhere32 && directory.entries != kElsewhere16) return directory;
  if (end < kLocator64Size || zip.number(end - kLocator64Size, 4) != kLocator64) return directory;
  const std::uint64_t end64 = zip.number(end - kLocator64Size + 8, 8);
  if (!zip.has(end64, kEnd64Size) || zip.number(end64, 4) != kEnd64) return std::nullopt;
  return ZipDirectory{zip.number(end64 + 48, 8), zip.number(end64 + 32, 8)};
}

// Sizes and places of 64 bits, in the order of the fields that they replace.
void read_extra64(const ZipBytes& zip, std::uint64_t begin, std::uint64_t end, ZipEntry& entry,
                  bool whole_elsewhere) {
  while (begin + 4 <= end) {
    const std::uint64_t kind = zip.number(begin, 2), next = begin + 4 + zip.number(begin + 2, 2);
    if (kind == kExtra64 && next <= end) {
      std::uint64_t at = begin + 4 + (whole_elsewhere ? 8 : 0);
      if (entry.size == kElsewhere32) {
        entry.size = zip.number(at, 8);
        at += 8;
      }
      if (entry.place == kElsewhere32) entry.place = zip.number(at, 8);
      return;
    }
    begin = next;
  }
}

std::optional<ZipEntry> read_listed(const ZipBytes& zip, std::uint64_t at) {
  if (!zip.has(at, kListedSize) || zip.number(at, 4) != kListed) return std::nullopt;
  const std::uint64_t name = zip.number(at + 28, 2), extra = zip.number(at + 30, 2),
                      comment = zip.number(at + 32, 2);
  if (!zip.has(at + kListedSize, name + extra + comment)) return std::nullopt;
  ZipEntry entry;
  const std::uint8_t* begin = zip.at(at + kListedSize);
  entry.name = std::string(begin, begin + name);
  entry.stored = zip.number(at + 10, 2) == 0;
  entry.crc = zip.number(at + 16, 4);
  entry.size = zip.number(at + 20, 4);
  entry.place = zip.number(at + 42, 4);
  entry.next = at + kListedSize + name + extra + comment;
  read_extra64(zip, at + kListedSize + name, at + kListedSize + name + extra, entry,
               zip.number(at + 24, 4) == kElsewhere32);
  return entry;
}

// torch.save writes 0 where its user has switched checksums off.
bool is_whole(const ZipBytes& zip, const ZipEntry& entry) {
  if (!zip.has(entry.place, kEntrySize) || zip.number(entry.place, 4) != kEntry) return false;
  const std::uint64_t begin =
      entry.place + kEntrySize + zip.number(entry.place + 26, 2) + zip.number(entry.place + 28, 2);
  if (!zip.has(begin, entry.size)) return false;
  return entry.crc == 0 || ::crc32_z(0, zip.at(begin), entry.size) == entry.crc;
}

}  // namespace

Expected<void> check_zip(const std::string& path, const Bytes& bytes) {
  const auto damaged = [&path](const std::string& why) {
    return bad_input(path + ": is damaged: " + why +
                     ": take another copy of the file, or a checkpoint of the run");
  };
  const ZipBytes zip(bytes);
  if (zip.number(0, 4) != kEntry) return {};
  const auto directory = find_directory(zip);
  if (!directory) return damaged("its end is missing");
  std::uint64_t at = directory->begin;
  for (std::uint64_t i = 0; i < directory->entries; ++i) {
    const auto entry = read_listed(zip, at);
    if (!entry) return damaged("the list of its entries cannot be read");
    if (entry->stored && !is_whole(zip, *entry))
      return damaged("its entry '" + without_control_characters(entry->name) +
                     "' has not the bytes that were written");
    at = entry->next;
  }
  return {};
}

}  // namespace grapevine
