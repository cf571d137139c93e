#include <array>
#include <string>
#include <tuple>
#include <vector>

#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>

#include "tests/fuzz/control_messages.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

namespace grapevine {
namespace {

template <class Message>
std::vector<char> written(Message& message) {
  std::vector<char> bytes;
  caf::binary_serializer sink{fuzzing::actor_system(), bytes};
  GRAPEVINE_CHECK(!sink(message), "a message that was read cannot be written");
  return bytes;
}

// Whether the bytes are a message of this type. It is written as the same bytes twice: its numbers
// may be packed shorter than they came.
template <class Message>
bool read(const char* bytes, std::size_t size, Message& message) {
  caf::binary_deserializer source{fuzzing::actor_system(), bytes, size};
  return !source(message);
}

template <class Message>
void check_message(const char* bytes, std::size_t size) {
  Message message, again;
  if (!read(bytes, size, message)) return;
  const std::vector<char> once = written(message);
  GRAPEVINE_CHECK(once.size() <= size, "a message grows from ", size, " to ", once.size());
  GRAPEVINE_CHECK(read(once.data(), once.size(), again), "a message that was written is refused");
  GRAPEVINE_CHECK(written(again) == once, "a message is read as another");
}

template <class... Messages>
constexpr std::array<void (*)(const char*, std::size_t), sizeof...(Messages)> checks_of(
    const std::tuple<Messages...>*) {
  return {&check_message<Messages>...};
}

constexpr auto kChecks = checks_of(static_cast<const fuzzing::ControlMessages*>(nullptr));

}  // namespace

void fuzz_one_control(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return;
  kChecks[data[0] % kChecks.size()](reinterpret_cast<const char*>(data) + 1, size - 1);
}

}  // namespace grapevine
