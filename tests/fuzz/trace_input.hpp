// The input of the fuzzer of trace files: at most kTraceInputFiles files, with kEndOfFile between
// them. One that begins with the magic number is taken as it is. Any other consists of frames, with
// kEndOfFrame between them: a byte of type, then the body. Their lengths and checksums are those of
// the bodies, which a fuzzer would not guess.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include <zlib.h>

#include "messages/trace/trace_format.hpp"
#include "tests/fuzz/scratch_file.hpp"

namespace grapevine::fuzzing {

inline constexpr std::size_t kTraceInputFiles = 3;
inline constexpr std::string_view kEndOfFrame = "\xFE\xFD", kEndOfFile = "\xFE\xFC";

inline void put_little_endian(std::string& out, std::size_t value) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

inline std::string trace_file_of(std::string_view frames) {
  if (frames.rfind("GVTRACE", 0) == 0) return std::string(frames);
  std::string file = trace_magic();
  while (!frames.empty()) {
    const std::string_view frame = take_until(kEndOfFrame, frames);
    if (frame.empty()) continue;
    put_little_endian(file, frame.size() - 1);
    put_little_endian(file, crc32_z(0, reinterpret_cast<const Bytef*>(frame.data()), frame.size()));
    file += frame;
  }
  return file;
}

}  // namespace grapevine::fuzzing
