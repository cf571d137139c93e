#include "messages/codec.hpp"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>

#include "messages/check.hpp"
#include "messages/random.hpp"
#include "tests/fuzz/codec_property.hpp"

namespace grapevine {
namespace codec_test {

using Bytes = std::vector<std::byte>;

constexpr std::array<at::ScalarType, 7> kDtypes{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                                at::kInt,   at::kLong,   at::kByte};

// Any bits at all: NaNs with payloads, denormals and infinities among them.
FrozenTensor random_bits(Rng& rng, at::ScalarType dtype, const std::vector<std::int64_t>& sizes) {
  at::Tensor t = at::empty(sizes, dtype);
  auto* bytes = static_cast<std::uint8_t*>(t.data_ptr());
  for (std::size_t i = 0; i < t.nbytes(); ++i) bytes[i] = static_cast<std::uint8_t>(rng());
  return FrozenTensor::freeze(std::move(t));
}

FrozenTensor random_tensor(Rng& rng) {
  if (rng() % 8 == 0) return {};
  std::vector<std::int64_t> sizes(rng() % 5);
  for (std::int64_t& size : sizes) size = static_cast<std::int64_t>(rng() % 5);
  return random_bits(rng, kDtypes[rng() % kDtypes.size()], sizes);
}

double random_double(Rng& rng) {
  const std::uint64_t bits = rng();
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

Extension random_extension(Rng& rng) {
  Extension e;
  e.type.resize(1 + rng() % kMaxExtensionType, 'a');
  for (char& c : e.type) c = "abcXYZ059-_."[rng() % 12];
  e.integers.resize(rng() % (kMaxExtensionNumbers + 1));
  for (std::int64_t& number : e.integers) number = static_cast<std::int64_t>(rng());
  e.reals.resize(rng() % (kMaxExtensionNumbers + 1));
  for (double& number : e.reals) number = random_double(rng);
  e.tensors.resize(rng() % (kMaxExtensionTensors + 1));
  for (FrozenTensor& t : e.tensors) t = random_tensor(rng);
  return e;
}

Payload random_payload(Rng& rng) {
  switch (rng() % std::variant_size_v<Payload>) {
    case 0:
      return Share{static_cast<std::int64_t>(rng()), random_double(rng), random_tensor(rng)};
    case 1:
      return Leave{static_cast<std::int64_t>(rng())};
    case 2:
      return Chunk{static_cast<std::int64_t>(rng()), static_cast<std::int32_t>(rng()),
                   static_cast<std::int32_t>(rng()), random_tensor(rng)};
    case 3:
      return Marker{static_cast<std::int64_t>(rng())};
    case 4:
      return Swap{static_cast<std::int64_t>(rng()), rng() % 2 == 0, random_tensor(rng),
                  random_tensor(rng)};
    case 5:
      return Activate{static_cast<std::int64_t>(rng()), rng() % 2 == 0};
    case 6:
      return ProgressUpdate{random_tensor(rng)};
    case 7:
      return Ask{static_cast<std::int64_t>(rng())};
    case 8:
      return Grant{static_cast<std::int64_t>(rng()), random_tensor(rng)};
    case 9:
      return Commit{static_cast<std::int64_t>(rng()), static_cast<std::int64_t>(rng()),
                    random_tensor(rng)};
    case 10:
      return Parameters{static_cast<std::int64_t>(rng()), rng() % 2 == 0, random_double(rng),
                        random_tensor(rng)};
    case 11:
      return Receipt{static_cast<std::int64_t>(rng()), rng() % 2 == 0, random_tensor(rng)};
    case 12:
      return random_extension(rng);
    case 13:
      return StateChunk{static_cast<std::int64_t>(rng()), static_cast<std::int64_t>(rng()),
                        static_cast<std::int64_t>(rng()), random_tensor(rng)};
    case 14:
      return StateReceived{static_cast<std::int64_t>(rng()), static_cast<std::int64_t>(rng())};
    default:
      return PackedChunk{static_cast<std::int64_t>(rng()),
                         static_cast<std::int32_t>(rng()),
                         static_cast<std::int32_t>(rng()),
                         {random_tensor(rng), random_tensor(rng), random_tensor(rng)}};
  }
}

Envelope random_envelope(Rng& rng) {
  Envelope e;
  e.from = static_cast<Rank>(rng() % 8);
  e.to = static_cast<Rank>(rng() % 8);
  e.stamp.origin = static_cast<Rank>(rng() % 8);
  e.stamp.step = static_cast<Step>(rng());
  e.stamp.version = static_cast<Version>(rng());
  e.stamp.sent = Timestamp(static_cast<std::int64_t>(rng()));
  e.stamp.hop = static_cast<std::uint16_t>(rng());
  e.stamp.sequence = rng();
  e.payload = random_payload(rng);
  return e;
}

auto stamp_fields(const Stamp& s) {
  return std::tuple(s.origin, s.step, s.version, s.sent.count(), s.hop, s.sequence);
}

std::uint64_t bits_of(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

void expect_same(const FrozenTensor& a, const FrozenTensor& b) {
  ASSERT_EQ(a.defined(), b.defined());
  if (!a.defined()) return;
  EXPECT_EQ(a.dtype(), b.dtype());
  EXPECT_EQ(a.sizes(), b.sizes());
  ASSERT_EQ(a.nbytes(), b.nbytes());
  if (a.nbytes() == 0) return;
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.nbytes()), 0);
}

struct ExpectSamePayload {
  void operator()(const Share& a, const Share& b) const {
    EXPECT_EQ(a.round, b.round);
    EXPECT_EQ(bits_of(a.w), bits_of(b.w));
    expect_same(a.x, b.x);
  }
  void operator()(const Leave& a, const Leave& b) const { EXPECT_EQ(a.last_round, b.last_round); }
  void operator()(const Chunk& a, const Chunk& b) const {
    EXPECT_EQ(std::tie(a.operation, a.round, a.index), std::tie(b.operation, b.round, b.index));
    expect_same(a.data, b.data);
  }
  void operator()(const Marker& a, const Marker& b) const { EXPECT_EQ(a.id, b.id); }
  void operator()(const Swap& a, const Swap& b) const {
    EXPECT_EQ(std::tie(a.exchange, a.reply), std::tie(b.exchange, b.reply));
    expect_same(a.x, b.x);
    expect_same(a.steps, b.steps);
  }
  void operator()(const ProgressUpdate& a, const ProgressUpdate& b) const {
    expect_same(a.steps, b.steps);
  }
  void operator()(const Activate& a, const Activate& b) const {
    EXPECT_EQ(std::tie(a.operation, a.begun), std::tie(b.operation, b.begun));
  }
  void operator()(const PackedChunk& a, const PackedChunk& b) const {
    EXPECT_EQ(std::tie(a.operation, a.round, a.sender), std::tie(b.operation, b.round, b.sender));
    expect_same(a.data.indices, b.data.indices);
    expect_same(a.data.values, b.data.values);
    expect_same(a.data.scales, b.data.scales);
  }
  void operator()(const Ask& a, const Ask& b) const { EXPECT_EQ(a.exchange, b.exchange); }
  void operator()(const Grant& a, const Grant& b) const {
    EXPECT_EQ(a.exchange, b.exchange);
    expect_same(a.theta, b.theta);
  }
  void operator()(const Commit& a, const Commit& b) const {
    EXPECT_EQ(std::tie(a.exchange, a.gradients), std::tie(b.exchange, b.gradients));
    expect_same(a.update, b.update);
  }
  void operator()(const Receipt& a, const Receipt& b) const {
    EXPECT_EQ(std::tie(a.exchange, a.accepted), std::tie(b.exchange, b.accepted));
    expect_same(a.value, b.value);
  }
  void operator()(const Parameters& a, const Parameters& b) const {
    EXPECT_EQ(std::tie(a.step, a.last), std::tie(b.step, b.last));
    EXPECT_EQ(bits_of(a.epoch), bits_of(b.epoch));
    expect_same(a.x, b.x);
  }
  void operator()(const StateChunk& a, const StateChunk& b) const {
    EXPECT_EQ(std::tie(a.transfer, a.offset, a.total), std::tie(b.transfer, b.offset, b.total));
    expect_same(a.data, b.data);
  }
  void operator()(const StateReceived& a, const StateReceived& b) const {
    EXPECT_EQ(std::tie(a.transfer, a.bytes), std::tie(b.transfer, b.bytes));
  }
  void operator()(const Extension& a, const Extension& b) const {
    EXPECT_EQ(std::tie(a.type, a.integers), std::tie(b.type, b.integers));
    ASSERT_EQ(a.reals.size(), b.reals.size());
    for (std::size_t i = 0; i < a.reals.size(); ++i)
      EXPECT_EQ(bits_of(a.reals[i]), bits_of(b.reals[i]));
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (std::size_t i = 0; i < a.tensors.size(); ++i) expect_same(a.tensors[i], b.tensors[i]);
  }
  template <class A, class B>
  void operator()(const A&, const B&) const {
    ADD_FAILURE() << "another kind of payload";
  }
};

void expect_same(const Envelope& a, const Envelope& b) {
  EXPECT_EQ(std::tie(a.from, a.to), std::tie(b.from, b.to));
  EXPECT_EQ(stamp_fields(a.stamp), stamp_fields(b.stamp));
  std::visit(ExpectSamePayload(), a.payload, b.payload);
}

Envelope share_of(FrozenTensor x) {
  Envelope e;
  e.payload = Share{0, 1.0, std::move(x)};
  return e;
}

TEST(Codec, DecodeUndoesEncode) {
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Envelope sent = random_envelope(rng);
    const Bytes bytes = encode(sent);
    ASSERT_EQ(bytes.size(), wire_size(sent));
    const Expected<Envelope> received = decode(bytes.data(), bytes.size(), fuzz_limits());
    ASSERT_TRUE(received.ok()) << received.error().message;
    expect_same(sent, *received);
    if (HasFailure()) return;
  }
}

TEST(Codec, EveryDtypeAndShapeOfEveryKindTravels) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {}, {0}, {1}, {7}, {2, 3}, {0, 5}, {5, 0, 2}, {1, 1, 1, 1, 1, 1, 1, 2}};
  Rng rng(11);
  for (const at::ScalarType dtype : kDtypes)
    for (const auto& shape : shapes) {
      SCOPED_TRACE(testing::Message() << dtype << ' ' << at::IntArrayRef(shape));
      Envelope e = share_of(random_bits(rng, dtype, shape));
      Bytes bytes = encode(e);
      expect_same(e, *decode(bytes.data(), bytes.size(), fuzz_limits()));
      e.payload = Chunk{1, 2, 3, std::get<Share>(e.payload).x};
      bytes = encode(e);
      expect_same(e, *decode(bytes.data(), bytes.size(), fuzz_limits()));
    }
}

TEST(Codec, NanBitPatternsSurvive) {
  const std::uint64_t signalling = 0x7FF4000000ABCDEFULL;
  at::Tensor t = at::empty({3}, at::kFloat);
  const std::array<std::uint32_t, 3> patterns{0x7F812345u, 0xFFC00001u, 0x7FFFFFFFu};
  std::memcpy(t.data_ptr(), patterns.data(), sizeof patterns);
  Envelope e = share_of(FrozenTensor::freeze(std::move(t)));
  std::memcpy(&std::get<Share>(e.payload).w, &signalling, sizeof signalling);
  const Bytes bytes = encode(e);
  const Expected<Envelope> decoded = decode(bytes.data(), bytes.size(), fuzz_limits());
  ASSERT_TRUE(decoded.ok());
  const Share& share = std::get<Share>(decoded->payload);
  EXPECT_EQ(std::memcmp(&share.w, &signalling, sizeof signalling), 0);
  EXPECT_EQ(std::memcmp(share.x.raw(), patterns.data(), sizeof patterns), 0);
}

TEST(Codec, HeaderThenPayloadIsTheWholeMessage) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Envelope e = random_envelope(rng);
    Bytes joined = encode_header(e);
    ASSERT_EQ(*header_size(joined.data(), kHeaderPrefixBytes), joined.size());
    for (const FrozenTensor& t : payload_of(e)) {
      if (t.nbytes() == 0) continue;
      const auto* bytes = static_cast<const std::byte*>(t.raw());
      joined.insert(joined.end(), bytes, bytes + t.nbytes());
    }
    EXPECT_EQ(joined, encode(e));
  }
}

// ---- The bytes themselves: a change here is a new format version.

Bytes from_hex(const std::string& text) {
  Bytes bytes;
  std::string digits;
  for (const char c : text) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() < 2) continue;
    bytes.push_back(static_cast<std::byte>(std::stoi(digits, nullptr, 16)));
    digits.clear();
  }
  return bytes;
}

Envelope golden_envelope(Payload payload) {
  Envelope e;
  e.from = 1;
  e.to = 2;
  e.stamp = {3, 4, -5, Timestamp(6), 8, 0x1122334455667788ULL};
  e.payload = std::move(payload);
  return e;
}

const char* const kGoldenMiddle =
    "01000000 02000000 03000000 0400000000000000 FBFFFFFFFFFFFFFF 0600000000000000"
    "8877665544332211 0800 000000000000";

TEST(Codec, GoldenBytesOfAShare) {
  const at::Tensor x = at::tensor({1.0f, -2.0f});
  const Envelope e = golden_envelope(Share{0x0102030405060708, 1.5, FrozenTensor::copy_of(x)});
  EXPECT_EQ(encode(e), from_hex(std::string("47564E45 0100 01 00 64000000") + kGoldenMiddle +
                                "0807060504030201 000000000000F83F"
                                "01 01 0000 0800000000000000 0200000000000000"
                                "0000803F 000000C0"));
}

TEST(Codec, GoldenBytesOfALeave) {
  EXPECT_EQ(
      encode(golden_envelope(Leave{9})),
      from_hex(std::string("47564E45 0100 02 00 48000000") + kGoldenMiddle + "0900000000000000"));
}

TEST(Codec, GoldenBytesOfAChunk) {
  const at::Tensor data = at::full({1, 2}, 0xAB, at::kByte);
  const Envelope e = golden_envelope(Chunk{-1, 7, -2, FrozenTensor::copy_of(data)});
  EXPECT_EQ(encode(e), from_hex(std::string("47564E45 0100 03 00 6C000000") + kGoldenMiddle +
                                "FFFFFFFFFFFFFFFF 07000000 FEFFFFFF"
                                "07 02 0000 0200000000000000 0100000000000000 0200000000000000"
                                "ABAB"));
}

TEST(Codec, GoldenBytesOfAMarker) {
  EXPECT_EQ(
      encode(golden_envelope(Marker{10})),
      from_hex(std::string("47564E45 0100 04 00 48000000") + kGoldenMiddle + "0A00000000000000"));
}

TEST(Codec, GoldenBytesOfAPackedChunk) {
  const Packed data{FrozenTensor::copy_of(at::tensor({3, -1}, at::kInt)),
                    FrozenTensor::copy_of(at::tensor({1.0f, -2.0f})),
                    {}};
  EXPECT_EQ(encode(golden_envelope(PackedChunk{5, 7, 2, data})),
            from_hex(std::string("47564E45 0100 08 00 84000000") + kGoldenMiddle +
                     "0500000000000000 07000000 02000000"
                     "05 01 0000 0800000000000000 0200000000000000"
                     "01 01 0000 0800000000000000 0200000000000000"
                     "00 00 0000 0000000000000000"
                     "03000000 FFFFFFFF 0000803F 000000C0"));
}

TEST(Codec, GoldenBytesOfAnExtension) {
  Extension e;
  e.type = "mine.1";
  e.integers = {-1, 2};
  e.reals = {1.5};
  e.tensors = {FrozenTensor::copy_of(at::tensor({1.0f, -2.0f})), {}};
  EXPECT_EQ(encode(golden_envelope(e)),
            from_hex(std::string("47564E45 0100 0E 00 82000000") + kGoldenMiddle +
                     "06 6D696E652E31"
                     "02 FFFFFFFFFFFFFFFF 0200000000000000"
                     "01 000000000000F83F"
                     "02 01 01 0000 0800000000000000 0200000000000000"
                     "00 00 0000 0000000000000000"
                     "0000803F 000000C0"));
}

TEST(Codec, GoldenIdsOfTheDtypes) {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    const Bytes bytes = encode(share_of(FrozenTensor::freeze(at::zeros({1}, kDtypes[i]))));
    EXPECT_EQ(std::to_integer<int>(bytes[80]), static_cast<int>(i) + 1);
  }
  EXPECT_EQ(std::to_integer<int>(encode(share_of({}))[80]), 0);
}

// ---- What is refused

void put(Bytes& bytes, std::size_t offset, std::uint64_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i)
    bytes[offset + i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
}

std::string refusal(const Bytes& bytes, const CodecLimits& limits = fuzz_limits()) {
  const Expected<Envelope> decoded = decode(bytes.data(), bytes.size(), limits);
  if (decoded.ok()) return "accepted";
  EXPECT_EQ(decoded.error().code, Errc::protocol);
  return decoded.error().message;
}

struct Lie {
  std::size_t offset;
  std::uint64_t value;
  std::size_t width;
  const char* field;  // named by the error
};

TEST(Codec, ErrorsNameTheField) {
  const Envelope e = share_of(FrozenTensor::freeze(at::zeros({2, 3})));
  const std::vector<Lie> lies = {{0, 0x12345678, 4, "magic"},
                                 {4, 2, 2, "format version"},
                                 {6, 0, 1, "payload kind"},
                                 {6, 99, 1, "payload kind"},
                                 {7, 1, 1, "reserved"},
                                 {8, 11, 4, "header length"},
                                 {8, 107, 4, "share.x"},
                                 {8, 109, 4, "header length"},
                                 {8, 0xffffffff, 4, "header length"},
                                 {12, 8, 4, "from"},
                                 {12, 0xffffffff, 4, "from"},
                                 {16, 8, 4, "to"},
                                 {16, 0x80000000, 4, "to"},
                                 {20, 8, 4, "stamp.origin"},
                                 {58, 1, 1, "reserved"},
                                 {63, 1, 1, "reserved"},
                                 {80, 8, 1, "share.x"},
                                 {80, 0, 1, "share.x"},
                                 {81, 9, 1, "share.x"},
                                 {81, 255, 1, "share.x"},
                                 {82, 1, 1, "share.x"},
                                 {84, 23, 8, "share.x"},
                                 {84, 28, 8, "share.x"},
                                 {84, ~std::uint64_t{0}, 8, "share.x"},
                                 {92, 3, 8, "share.x"},
                                 {92, ~std::uint64_t{0}, 8, "share.x"},
                                 {92, std::uint64_t{1} << 62, 8, "share.x"}};
  for (const Lie& lie : lies) {
    SCOPED_TRACE(testing::Message() << lie.value << " at " << lie.offset);
    Bytes bytes = encode(e);
    put(bytes, lie.offset, lie.value, lie.width);
    EXPECT_NE(refusal(bytes).find(std::string("field ") + lie.field), std::string::npos)
        << refusal(bytes);
  }
}

Extension largest_extension() {
  Extension e;
  e.type = std::string(kMaxExtensionType, 'x');
  e.integers.resize(kMaxExtensionNumbers, 1);
  e.reals.resize(kMaxExtensionNumbers, 0.5);
  const std::vector<std::int64_t> eight(kMaxTensorDimensions, 1);
  e.tensors.resize(kMaxExtensionTensors, FrozenTensor::freeze(at::zeros(eight)));
  return e;
}

TEST(Codec, TheLargestExtensionTravels) {
  Envelope sent;
  sent.payload = largest_extension();
  const Bytes bytes = encode(sent);
  const auto received = decode(bytes.data(), bytes.size(), fuzz_limits());
  ASSERT_TRUE(received.ok()) << received.error().message;
  expect_same(sent, *received);
}

TEST(Codec, AnExtensionBeyondItsLimitsBreaksAnInvariant) {
  const auto encoded_with = [](auto change) {
    Envelope envelope;
    Extension e = largest_extension();
    change(e);
    envelope.payload = std::move(e);
    return encode(envelope);
  };
  EXPECT_NO_THROW(encoded_with([](Extension&) {}));
  EXPECT_THROW(encoded_with([](Extension& e) { e.type += 'x'; }), InvariantBroken);
  EXPECT_THROW(encoded_with([](Extension& e) { e.type.clear(); }), InvariantBroken);
  EXPECT_THROW(encoded_with([](Extension& e) { e.type = "a b"; }), InvariantBroken);
  EXPECT_THROW(encoded_with([](Extension& e) { e.integers.push_back(0); }), InvariantBroken);
  EXPECT_THROW(encoded_with([](Extension& e) { e.reals.push_back(0); }), InvariantBroken);
  EXPECT_THROW(encoded_with([](Extension& e) { e.tensors.emplace_back(); }), InvariantBroken);
}

TEST(Codec, ErrorsNameTheFieldOfAnExtension) {
  Envelope envelope;
  Extension e;
  e.type = "mine";
  e.integers = {1};
  e.reals = {0.5};
  e.tensors = {FrozenTensor::freeze(at::zeros({2}))};
  envelope.payload = e;
  const std::vector<std::pair<Lie, std::string>> lies = {
      {{64, 0, 1, "extension.type"}, "is no name of a type"},
      {{66, '\n', 1, "extension.type"}, "is no name of a type"},
      {{66, '"', 1, "extension.type"}, "is no name of a type"},
      {{66, 0xC3, 1, "extension.type"}, "is no name of a type"},
      {{64, 65, 1, "extension.type"}, "has 65 elements, beyond the limit of 64"},
      {{64, 255, 1, "extension.type"}, "has 255 elements, beyond the limit of 64"},
      {{69, 17, 1, "extension.integers"}, "has 17 elements, beyond the limit of 16"},
      {{78, 17, 1, "extension.reals"}, "has 17 elements, beyond the limit of 16"},
      {{87, 9, 1, "extension.tensors"}, "has 9 elements, beyond the limit of 8"},
      {{87, 2, 1, "extension.tensors"}, "is cut off"},
      {{88, 8, 1, "extension.tensors"}, "has the unknown dtype 8"}};
  for (const auto& [lie, what] : lies) {
    SCOPED_TRACE(testing::Message() << lie.value << " at " << lie.offset);
    Bytes bytes = encode(envelope);
    put(bytes, lie.offset, lie.value, lie.width);
    const std::string sentence = std::string("field ") + lie.field + " " + what;
    EXPECT_NE(refusal(bytes).find(sentence), std::string::npos) << refusal(bytes);
  }
}

TEST(Codec, AnExtensionHasTheNameOfItsType) {
  EXPECT_EQ(payload_name(Extension{"mine", {}, {}, {}}), "mine");
  EXPECT_EQ(payload_name(PackedChunk()), "packed chunk");
}

TEST(Codec, EveryTruncationAndEveryTrailingByteIsRefused) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Bytes whole = encode(random_envelope(rng));
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_NE(refusal(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size))),
                "accepted")
          << size << " of " << whole.size();
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_NE(refusal(longer), "accepted");
  }
}

TEST(Codec, DecodeHeaderTakesTheHeaderAlone) {
  const Envelope e = share_of(FrozenTensor::freeze(at::zeros({2})));
  const Bytes bytes = encode(e);
  const std::size_t header = encode_header(e).size();
  EXPECT_TRUE(decode_header(bytes.data(), header, fuzz_limits()).ok());
  EXPECT_FALSE(decode_header(bytes.data(), header + 1, fuzz_limits()).ok());
  EXPECT_FALSE(decode_header(bytes.data(), header - 1, fuzz_limits()).ok());
}

TEST(Codec, LimitsAreInclusive) {
  const Bytes bytes = encode(share_of(FrozenTensor::freeze(at::zeros({4, 25}))));
  CodecLimits limits;
  limits.max_payload_bytes = 400;
  limits.max_elements = 100;
  limits.world_size = 1;
  EXPECT_EQ(refusal(bytes, limits), "accepted");
  limits.max_payload_bytes = 399;
  EXPECT_NE(refusal(bytes, limits).find("share.x"), std::string::npos);
  limits.max_payload_bytes = 400;
  limits.max_elements = 99;
  EXPECT_NE(refusal(bytes, limits).find("share.x"), std::string::npos);
  limits.max_elements = 100;
  limits.world_size = 0;
  EXPECT_NE(refusal(bytes, limits).find("from"), std::string::npos);
}

// Remembers the largest request made to the allocator of host tensors while it lives.
class AllocationMeter final : public c10::Allocator {
 public:
  AllocationMeter() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~AllocationMeter() override { c10::SetCPUAllocator(inner_, kPriority); }
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  c10::DataPtr allocate(std::size_t bytes) const override {
    largest_ = std::max(largest_, bytes);
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  std::size_t largest() const { return largest_; }

 private:
  static constexpr std::uint8_t kPriority = 100;
  c10::Allocator* inner_;
  mutable std::size_t largest_ = 0;
};

TEST(Codec, SizesThatOverflowAreRefusedBeforeAnyAllocation) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::vector<std::int64_t>> shapes = {
      {std::int64_t{1} << 62, 4},
      {std::int64_t{1} << 32, std::int64_t{1} << 32},
      {kMax, kMax},
      {0, kMax},
      {kMax, 0, kMax},
      {-1, -1},
      {kMax, 2},
      {std::int64_t{1} << 20, 1}};
  for (const auto& shape : shapes) {
    SCOPED_TRACE(testing::Message() << at::IntArrayRef(shape));
    const std::vector<std::int64_t> ones(shape.size(), 1);
    Bytes bytes = encode(share_of(FrozenTensor::freeze(at::zeros(ones))));
    for (std::size_t i = 0; i < shape.size(); ++i)
      put(bytes, 92 + 8 * i, static_cast<std::uint64_t>(shape[i]), 8);
    for (const std::uint64_t claimed : {0, 4, 16}) {
      put(bytes, 84, claimed, 8);
      const AllocationMeter meter;
      EXPECT_NE(refusal(bytes).find("share.x"), std::string::npos) << refusal(bytes);
      EXPECT_NE(refusal(bytes, CodecLimits()).find("share.x"), std::string::npos);
      EXPECT_EQ(meter.largest(), 0u);
    }
  }
}

// ---- Receiving in parts

TEST(Codec, ReceivedTensorsAreTakenWithoutACopy) {
  const Envelope sent = share_of(FrozenTensor::freeze(at::ones({2, 3}, at::kDouble)));
  const EncodedHeader bytes = encode_header(sent);
  Expected<DecodedHeader> header = decode_header(bytes.data(), bytes.size(), fuzz_limits());
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_EQ(header->payload_bytes(), 6 * sizeof(double));
  std::vector<at::Tensor> payload = allocate_payload(*header);
  ASSERT_EQ(payload.size(), 1u);
  const void* memory = payload[0].data_ptr();
  std::memcpy(payload[0].data_ptr(), payload_of(sent)[0].raw(), payload[0].nbytes());
  const Expected<Envelope> received = assemble(*std::move(header), std::move(payload));
  ASSERT_TRUE(received.ok());
  expect_same(sent, *received);
  EXPECT_EQ(std::get<Share>(received->payload).x.raw(), memory);
}

TEST(Codec, AssembleRefusesAnotherPayload) {
  const EncodedHeader bytes = encode_header(share_of(FrozenTensor::freeze(at::zeros({2, 3}))));
  const DecodedHeader header = *decode_header(bytes.data(), bytes.size(), fuzz_limits());
  const std::vector<std::vector<at::Tensor>> wrong = {{},
                                                      {at::Tensor()},
                                                      {at::zeros({3, 2})},
                                                      {at::zeros({6})},
                                                      {at::zeros({2, 3}, at::kInt)},
                                                      {at::zeros({2, 3}), at::zeros({2, 3})}};
  for (const auto& payload : wrong) {
    const Expected<Envelope> joined = assemble(header, payload);
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.error().code, Errc::protocol);
  }
  EXPECT_TRUE(assemble(header, {at::zeros({2, 3})}).ok());
}

TEST(Codec, TensorsThatCannotTravelBreakAnInvariant) {
  EXPECT_THROW(encode(share_of(FrozenTensor::freeze(at::zeros({2}, at::kBool)))), InvariantBroken);
  const std::vector<std::int64_t> nine(9, 1);
  EXPECT_THROW(encode(share_of(FrozenTensor::freeze(at::zeros(nine)))), InvariantBroken);
}

// ---- Mutations of valid messages

std::uint64_t interesting(Rng& rng) {
  constexpr std::array<std::uint64_t, 12> kEdges{0,
                                                 1,
                                                 4,
                                                 7,
                                                 8,
                                                 0x7f,
                                                 0xffff,
                                                 0x7fffffff,
                                                 0x80000000,
                                                 0x7fffffffffffffff,
                                                 0x8000000000000000,
                                                 0xffffffffffffffff};
  return rng() % 4 == 0 ? rng() : kEdges[rng() % kEdges.size()];
}

void mutate(Rng& rng, Bytes& bytes) {
  const std::size_t at = bytes.empty() ? 0 : rng() % bytes.size();
  switch (rng() % 6) {
    case 0:  // a flipped bit
      if (!bytes.empty()) bytes[at] ^= static_cast<std::byte>(1u << (rng() % 8));
      break;
    case 1:  // cut off
      bytes.resize(at);
      break;
    case 2:  // longer than it says
      bytes.resize(bytes.size() + 1 + rng() % 16, static_cast<std::byte>(rng()));
      break;
    case 3: {  // a field that lies
      const std::size_t width = std::size_t{1} << (rng() % 4);
      if (at + width <= bytes.size()) put(bytes, at, interesting(rng), width);
      break;
    }
    case 4:  // a descriptor that lies: the first one is at 80 or thereabouts
      if (bytes.size() >= 110) put(bytes, 80 + 4 * (rng() % 6), interesting(rng), 8);
      break;
    default:  // bytes of the middle are missing
      if (!bytes.empty())
        bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    bytes.begin() +
                        static_cast<std::ptrdiff_t>(std::min(bytes.size(), at + 1 + rng() % 8)));
  }
}

TEST(Codec, MutatedMessagesNeverCrashNorAllocateBeyondTheLimits) {
  constexpr int kSeeds = 500;
  constexpr int kMutationsPerSeed = 450;
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(mix_seed(2024, seed));
    const Bytes whole = encode(random_envelope(rng));
    const AllocationMeter meter;
    for (int i = 0; i < kMutationsPerSeed; ++i) {
      Bytes bytes = whole;
      for (std::uint64_t n = 1 + rng() % 3; n > 0; --n) mutate(rng, bytes);
      const CodecVerdict verdict = check_codec(bytes.data(), bytes.size());
      ASSERT_EQ(verdict.flaw, "") << "mutation " << i;
      accepted += verdict.accepted;
    }
    ASSERT_LE(meter.largest(), fuzz_limits().max_payload_bytes);
  }
  // Both branches were really exercised: changes to scalars and payloads leave a valid message.
  EXPECT_GT(accepted, kSeeds * kMutationsPerSeed / 50);
  EXPECT_LT(accepted, kSeeds * kMutationsPerSeed * 9 / 10);
}

TEST(Codec, RandomBytesAreRefused) {
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    Rng rng(mix_seed(7, seed));
    Bytes bytes(rng() % 200);
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
    const CodecVerdict verdict = check_codec(bytes.data(), bytes.size());
    ASSERT_EQ(verdict.flaw, "") << "seed " << seed;
    ASSERT_FALSE(verdict.accepted) << "seed " << seed;
  }
}

}  // namespace codec_test
}  // namespace grapevine
