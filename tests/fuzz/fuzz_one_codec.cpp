#include "tests/fuzz/codec_property.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

namespace grapevine {

void fuzz_one_codec(const std::uint8_t* data, std::size_t size) {
  const CodecVerdict verdict = check_codec(reinterpret_cast<const std::byte*>(data), size);
  GRAPEVINE_CHECK(verdict.flaw.empty(), verdict.flaw);
}

}  // namespace grapevine
