// The frames that another process sends to CAF's middleman, before CAF reads them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "messages/expected.hpp"

namespace grapevine {

// CAF ends a connection whose bytes are no messages of its protocol (BASP) without a word, and
// reserves as much memory as a header names, up to 4 GiB. This object reads the same headers: 32
// bytes with the kind, the length of the payload behind the header, and three numbers that only CAF
// uses (caf/io/basp/header.hpp, version 3). No I/O; one thread.
class BaspGuard {
 public:
  // Sixteen times the longest message of a run of 4,096 workers and as many processes:
  // tests/actors/cluster/control_size_test.cpp.
  static constexpr std::uint32_t kMostPayloadBytes = std::uint32_t{1} << 20;
  // Of the first message of a process that dials; its payload names the process.
  static constexpr std::uint32_t kMostGreetingBytes = std::uint32_t{4} << 10;

  // What the other side sends first: the side that accepts a connection greets first.
  enum class First : std::uint8_t { greeting_of_accepting_side = 0, greeting_of_dialling_side = 1 };
  explicit BaspGuard(First first) : first_(first) {}

  // The next bytes of the connection, in pieces of any size. Errors (protocol): the connection is
  // to be ended; the text is one of a few. Bytes after an error are of no use.
  Expected<void> take(const void* bytes, std::size_t count);
  // Whether a whole message has been taken, with its payload.
  bool has_message() const { return complete_; }
  // Bytes of the longest payload that a header has named since the last call.
  std::uint32_t take_longest() { return std::exchange(longest_, 0); }

 private:
  Expected<void> check_start() const;
  Expected<void> check_header();

  const First first_;
  bool greeted_ = false;                    // the first header has been taken
  bool complete_ = false;                   // and the payload behind it
  std::array<unsigned char, 32> header_{};  // of the current message
  std::size_t filled_ = 0;                  // bytes of header_
  std::uint32_t payload_ = 0;               // bytes of the current payload that are to come
  std::uint32_t longest_ = 0;               // see take_longest()
};

}  // namespace grapevine
