#include "actors/protocol/packed_integers.hpp"

#include <algorithm>

#include "messages/check.hpp"

namespace grapevine {
namespace {

// Of a list: its length (a number, see below). If it is not empty: the bits of each difference and
// the kind of the differences, a byte each; where they are of steps, the first value; the least
// value, or step; the differences, from the lowest bit of the first byte on, then zeros to a whole
// byte. The kinds: 0..63, of values, divided by that power of two; or kSteps.
constexpr std::uint8_t kSteps = 64;
constexpr int kMostBits = 64, kByteBits = 8;

// Numbers have seven bits in each byte, the lowest first, and a bit that says that more follow;
// those with a sign alternate around zero: 0, -1, 1, -2.
constexpr int kNumberBits = 7;
constexpr std::uint64_t kMoreFollow = 0x80;

void append_number(std::uint64_t number, std::string& bytes) {
  for (; number >= kMoreFollow; number >>= kNumberBits)
    bytes.push_back(static_cast<char>(number % kMoreFollow | kMoreFollow));
  bytes.push_back(static_cast<char>(number));
}

std::uint64_t without_sign(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  return value < 0 ? ~(bits << 1) : bits << 1;
}

std::int64_t with_sign(std::uint64_t number) {
  const std::uint64_t half = number >> 1;
  return static_cast<std::int64_t>(number % 2 == 0 ? half : ~half);
}

// All arithmetic of values is modulo 2^64.
std::uint64_t difference(std::int64_t a, std::int64_t b) {
  return static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b);
}

std::int64_t sum(std::int64_t a, std::uint64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + b);
}

int bits_of(std::uint64_t number) {
  int bits = 0;
  for (; number > 0; number >>= 1) ++bits;
  return bits;
}

std::size_t bytes_of_bits(std::size_t count, int bits) {
  return (count * static_cast<std::size_t>(bits) + kByteBits - 1) / kByteBits;
}

// Where the values lie.
struct Frame {
  std::int64_t least = 0;
  int bits = 0;  // of the largest difference from it
};

Frame frame_of(const Integers& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {*least, bits_of(difference(*most, *least))};
}

Integers steps_of(const Integers& values) {
  Integers steps;
  for (std::size_t i = 1; i < values.size(); ++i)
    steps.push_back(static_cast<std::int64_t>(difference(values[i], values[i - 1])));
  return steps;
}

class BitWriter {
 public:
  explicit BitWriter(std::string& bytes) : bytes_(bytes) {}
  // REQUIRES: value < 2^bits.
  void put(std::uint64_t value, int bits) {
    while (bits > 0) {
      if (used_ == 0) bytes_.push_back(0);
      const int count = std::min(bits, kByteBits - used_);
      const std::uint64_t low = value & ((std::uint64_t{1} << count) - 1);
      bytes_.back() = static_cast<char>(static_cast<unsigned char>(bytes_.back()) | low << used_);
      value >>= count;
      bits -= count;
      used_ = (used_ + count) % kByteBits;
    }
  }

 private:
  std::string& bytes_;
  int used_ = 0;  // bits of the last byte; 0: of none
};

class BitReader {
 public:
  explicit BitReader(std::string_view bytes) : bytes_(bytes) {}
  // REQUIRES: so many bits are left.
  std::uint64_t take(int bits) {
    std::uint64_t value = 0;
    for (int done = 0; done < bits;) {
      const int count = std::min(bits - done, kByteBits - used_);
      const auto byte = static_cast<unsigned char>(bytes_[at_]);
      const std::uint64_t low = (byte >> used_) & ((std::uint64_t{1} << count) - 1);
      value |= low << done;
      done += count;
      used_ = (used_ + count) % kByteBits;
      if (used_ == 0) ++at_;
    }
    return value;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  int used_ = 0;  // bits of the byte at at_
};

void append_differences(const Integers& values, const Frame& frame, int shift, std::string& bytes) {
  append_number(without_sign(frame.least), bytes);
  BitWriter writer(bytes);
  for (const std::int64_t value : values)
    writer.put(difference(value, frame.least) >> shift, frame.bits - shift);
}

void append_values(const Integers& values, const Frame& frame, int shift, std::string& bytes) {
  bytes.push_back(static_cast<char>(frame.bits - shift));
  bytes.push_back(static_cast<char>(shift));
  append_differences(values, frame, shift, bytes);
}

void append_steps(const Integers& values, const Integers& steps, const Frame& frame,
                  std::string& bytes) {
  bytes.push_back(static_cast<char>(frame.bits));
  bytes.push_back(static_cast<char>(kSteps));
  append_number(without_sign(values.front()), bytes);
  append_differences(steps, frame, 0, bytes);
}

}  // namespace

void pack(const Integers& values, std::string& bytes) {
  append_number(values.size(), bytes);
  if (values.empty()) return;
  const Frame frame = frame_of(values);
  if (values.size() > 1) {
    const Integers steps = steps_of(values);
    const Frame of_steps = frame_of(steps);
    if (bytes_of_bits(steps.size(), of_steps.bits) < bytes_of_bits(values.size(), frame.bits))
      return append_steps(values, steps, of_steps, bytes);
  }
  append_values(values, frame, 0, bytes);
}

void pack_within(const Integers& values, std::size_t most_bytes, std::string& bytes) {
  append_number(values.size(), bytes);
  if (values.empty()) return;
  GRAPEVINE_CHECK(values.size() <= most_bytes * kByteBits, "no bit for each value of a list");
  const Frame frame = frame_of(values);
  const std::size_t room = most_bytes * kByteBits / values.size();
  const int most = static_cast<int>(std::min<std::size_t>(kMostBits, room));
  append_values(values, frame, std::max(0, frame.bits - most), bytes);
}

std::optional<std::uint8_t> PackedReader::take_byte() {
  if (rest_.empty()) return std::nullopt;
  const auto byte = static_cast<std::uint8_t>(rest_.front());
  rest_.remove_prefix(1);
  return byte;
}

std::optional<std::uint64_t> PackedReader::take_number() {
  std::uint64_t number = 0;
  for (int bits = 0; bits < kMostBits; bits += kNumberBits) {
    const auto byte = take_byte();
    if (!byte) return std::nullopt;
    number |= (*byte % kMoreFollow) << bits;
    if (*byte < kMoreFollow) return number;
  }
  return std::nullopt;
}

std::optional<Integers> PackedReader::take_differences(std::size_t lead, std::size_t count,
                                                       int bits) {
  const std::size_t bytes = bytes_of_bits(count, bits);
  if (bytes > rest_.size()) return std::nullopt;
  BitReader reader(rest_.substr(0, bytes));
  rest_.remove_prefix(bytes);
  Integers differences(lead + count);
  for (std::size_t i = lead; i < differences.size(); ++i)
    differences[i] = static_cast<std::int64_t>(reader.take(bits));
  return differences;
}

std::optional<Integers> PackedReader::take() {
  const auto count = take_number();
  if (!count || *count > kMostPacked) return std::nullopt;
  if (*count == 0) return Integers();
  const auto bits = take_byte(), kind = take_byte();
  if (!bits || !kind || *bits > kMostBits || *kind > kSteps) return std::nullopt;
  const bool are_steps = *kind == kSteps;
  const auto first = are_steps ? take_number() : std::optional<std::uint64_t>(0);
  const auto least = take_number();
  if (!first || !least) return std::nullopt;
  const std::size_t lead = are_steps ? 1 : 0;  // values that are no difference
  auto values = take_differences(lead, *count - lead, *bits);
  if (!values) return std::nullopt;
  const int shift = are_steps ? 0 : *kind;
  for (std::size_t i = lead; i < values->size(); ++i)
    (*values)[i] = sum(with_sign(*least), static_cast<std::uint64_t>((*values)[i]) << shift);
  if (!are_steps) return values;
  values->front() = with_sign(*first);
  for (std::size_t i = 1; i < values->size(); ++i)
    (*values)[i] = sum((*values)[i - 1], static_cast<std::uint64_t>((*values)[i]));
  return values;
}

}  // namespace grapevine
