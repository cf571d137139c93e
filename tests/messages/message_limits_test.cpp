// Limits that are sums: what a message may hold is what its tensors hold together.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "messages/codec.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace message_limits_test {

FrozenTensor floats(std::int64_t count) { return FrozenTensor::freeze(at::zeros({count})); }

std::string refusal(const Payload& payload, std::uint64_t most) {
  Envelope envelope;
  envelope.payload = payload;
  const std::vector<std::byte> bytes = encode(envelope);
  CodecLimits limits;
  limits.max_payload_bytes = most;
  const auto decoded = decode(bytes.data(), bytes.size(), limits);
  return decoded ? "" : decoded.error().message;
}

TEST(MessageLimits, PayloadIsThatOfAllTensorsTogether) {
  struct Case {
    Payload payload;
    std::string last;  // the tensor that goes beyond
  };
  const std::vector<Case> cases = {
      {Swap{1, false, floats(10), floats(6)}, "swap.steps"},
      {PackedChunk{1, 2, 3, {floats(6), floats(6), floats(4)}}, "packed.scales"},
      {PackedChunk{1, 2, 3, {FrozenTensor(), floats(10), floats(6)}}, "packed.scales"},
      {Extension{"mine", {}, {}, {floats(10), floats(2), floats(4)}}, "extension.tensors"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.last);
    EXPECT_EQ(refusal(c.payload, 64), "");
    for (const std::uint64_t less : {std::uint64_t{63}, std::uint64_t{40}}) {
      const std::string message = refusal(c.payload, less);
      EXPECT_NE(message.find("beyond the limit of " + std::to_string(less)), std::string::npos)
          << message;
      if (less == 63) {
        EXPECT_NE(message.find(c.last), std::string::npos) << message;
      }
    }
  }
}

TEST(ExceptionLine, IsTheFirstLineAndNeverEmpty) {
  const auto line_of = [](const std::string& text) {
    return exception_line(std::make_exception_ptr(std::runtime_error(text)));
  };
  EXPECT_EQ(line_of("no such file\nbacktrace"), "no such file");
  EXPECT_EQ(line_of("one line"), "one line");
  for (const char* empty : {"", "\nbacktrace"}) EXPECT_EQ(line_of(empty), "unknown exception");
  EXPECT_EQ(exception_line(std::make_exception_ptr(7)), "unknown exception");
  EXPECT_EQ(exception_line({}), "unknown exception");
}

// What a peer says whose model is on a GPU.
TEST(ExceptionLine, SaysWhereMemoryRanOutAndWhatToDo) {
  const auto line_of = [](const auto& problem) {
    return exception_line(std::make_exception_ptr(problem));
  };
  EXPECT_EQ(line_of(std::runtime_error("CUDA out of memory. Tried to allocate 5.59 GiB. GPU 2 has "
                                       "a total capacity\nException raised from malloc")),
            "out of memory on cuda:2 (5.59 GiB more were needed): use a smaller --batch-size, with "
            "--accumulate for as many samples, or fewer workers for each device");
  EXPECT_EQ(line_of(std::bad_alloc()), "out of memory (std::bad_alloc)");
  EXPECT_EQ(line_of(std::runtime_error("Tried to allocate too little. GPU 2")),
            "Tried to allocate too little. GPU 2");
}

}  // namespace message_limits_test
}  // namespace grapevine
