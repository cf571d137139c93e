// Coverage-guided fuzzer of the codec, for clang's libFuzzer; not part of the default build. From
// the repository root:
//
//   clang++ -std=c++17 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize=vptr -I. \
//     -isystem "$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')/../../include" \
//     tests/fuzz/codec_fuzzer.cpp messages/codec.cpp messages/frozen_tensor.cpp \
//     -ltorch_cpu -lc10 -o codec_fuzzer
//   ./codec_fuzzer -max_len=8192 -max_total_time=600
//
// Distribution packages of LibTorch need no -isystem. A flaw aborts and leaves the input in a file,
// which `./codec_fuzzer FILE` replays.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/codec_property.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const grapevine::CodecVerdict verdict =
      grapevine::check_codec(reinterpret_cast<const std::byte*>(data), size);
  if (!verdict.flaw.empty()) {
    std::fprintf(stderr, "flaw: %s\n", verdict.flaw.c_str());
    std::abort();
  }
  return 0;
}
