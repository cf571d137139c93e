#include "messages/codec.hpp"

#include <ATen/EmptyTensor.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include "messages/check.hpp"
#include "messages/payload_kind.hpp"

namespace grapevine {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "tensor bytes travel as they lie in memory: the wire is little-endian");
static_assert(std::numeric_limits<double>::is_iec559, "doubles travel as IEEE 754 bits");

constexpr std::uint32_t kMagic = 0x454E5647;  // "GVNE" in memory order

// ---- The fields of payloads, in the order of PayloadKind; its numbers are never reused.
// Archives are called with the name of the field, which errors quote.

template <class P>
struct Wire;

template <>
struct Wire<Share> {
  static constexpr PayloadKind kKind = PayloadKind::share;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("share.round", p.round);
    archive("share.w", p.w);
    archive("share.x", p.x);
  }
};

template <>
struct Wire<Leave> {
  static constexpr PayloadKind kKind = PayloadKind::leave;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("leave.last_round", p.last_round);
  }
};

template <>
struct Wire<Chunk> {
  static constexpr PayloadKind kKind = PayloadKind::chunk;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("chunk.operation", p.operation);
    archive("chunk.round", p.round);
    archive("chunk.index", p.index);
    archive("chunk.data", p.data);
  }
};

template <>
struct Wire<Marker> {
  static constexpr PayloadKind kKind = PayloadKind::marker;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("marker.id", p.id);
  }
};
template <>
struct Wire<Swap> {
  static constexpr PayloadKind kKind = PayloadKind::swap;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("swap.exchange", p.exchange);
    archive("swap.reply", p.reply);
    archive("swap.x", p.x);
    archive("swap.steps", p.steps);
  }
};
template <>
struct Wire<ProgressUpdate> {
  static constexpr PayloadKind kKind = PayloadKind::progress_update;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("progress_update.steps", p.steps);
  }
};
template <>
struct Wire<Activate> {
  static constexpr PayloadKind kKind = PayloadKind::activate;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("activate.operation", p.operation);
    archive("activate.begun", p.begun);
  }
};
template <>
struct Wire<PackedChunk> {
  static constexpr PayloadKind kKind = PayloadKind::packed_chunk;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("packed.operation", p.operation);
    archive("packed.round", p.round);
    archive("packed.sender", p.sender);
    archive("packed.indices", p.data.indices);
    archive("packed.values", p.data.values);
    archive("packed.scales", p.data.scales);
  }
};

template <>
struct Wire<Ask> {
  static constexpr PayloadKind kKind = PayloadKind::ask;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("ask.exchange", p.exchange);
  }
};
template <>
struct Wire<Grant> {
  static constexpr PayloadKind kKind = PayloadKind::grant;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("grant.exchange", p.exchange);
    archive("grant.theta", p.theta);
  }
};
template <>
struct Wire<Commit> {
  static constexpr PayloadKind kKind = PayloadKind::commit;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("commit.exchange", p.exchange);
    archive("commit.gradients", p.gradients);
    archive("commit.update", p.update);
  }
};
template <>
struct Wire<Receipt> {
  static constexpr PayloadKind kKind = PayloadKind::receipt;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("receipt.exchange", p.exchange);
    archive("receipt.accepted", p.accepted);
    archive("receipt.value", p.value);
  }
};
template <>
struct Wire<Parameters> {
  static constexpr PayloadKind kKind = PayloadKind::parameters;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("parameters.step", p.step);
    archive("parameters.last", p.last);
    archive("parameters.epoch", p.epoch);
    archive("parameters.x", p.x);
  }
};

template <>
struct Wire<Extension> {
  static constexpr PayloadKind kKind = PayloadKind::extension;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("extension.type", p.type);
    archive("extension.integers", p.integers);
    archive("extension.reals", p.reals);
    archive("extension.tensors", p.tensors);
  }
};

template <>
struct Wire<StateChunk> {
  static constexpr PayloadKind kKind = PayloadKind::state_chunk;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("state.transfer", p.transfer);
    archive("state.offset", p.offset);
    archive("state.total", p.total);
    archive("state.data", p.data);
  }
};
template <>
struct Wire<StateReceived> {
  static constexpr PayloadKind kKind = PayloadKind::state_received;
  template <class Archive, class P>
  static void fields(Archive& archive, P& p) {
    archive("state_received.transfer", p.transfer);
    archive("state_received.bytes", p.bytes);
  }
};

// The most elements of a list of an Extension.
template <class Element>
constexpr std::size_t kMostElements = kMaxExtensionNumbers;
template <>
constexpr std::size_t kMostElements<FrozenTensor> = kMaxExtensionTensors;

constexpr std::size_t kLargestExtension = 64 + 4 + kMaxExtensionType +
                                          2 * 8 * kMaxExtensionNumbers +
                                          kMaxExtensionTensors * (12 + 8 * kMaxTensorDimensions);
static_assert(kLargestExtension <= kMaxHeaderBytes, "every Extension within its limits travels");

// Whether `type` may name an Extension: errors and drawings print it.
bool is_type_name(const std::string& type) {
  constexpr const char* kCharacters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !type.empty() && type.size() <= kMaxExtensionType &&
         type.find_first_not_of(kCharacters) == std::string::npos;
}

template <class Archive, class E>
void envelope_fields(Archive& archive, E& e) {
  archive("from", e.from);
  archive("to", e.to);
  archive("stamp.origin", e.stamp.origin);
  archive("stamp.step", e.stamp.step);
  archive("stamp.version", e.stamp.version);
  archive("stamp.sent", e.stamp.sent);
  archive("stamp.sequence", e.stamp.sequence);
  archive("stamp.hop", e.stamp.hop);
  archive.zeros("reserved", 6);
}

template <class Archive, class V>
void payload_fields(Archive& archive, V& payload) {
  std::visit([&](auto& p) { Wire<std::decay_t<decltype(p)>>::fields(archive, p); }, payload);
}

PayloadKind kind_of(const Payload& payload) {
  return std::visit([](const auto& p) { return Wire<std::decay_t<decltype(p)>>::kKind; }, payload);
}

template <std::size_t I>
constexpr std::uint8_t kKindNumber =
    static_cast<std::uint8_t>(Wire<std::variant_alternative_t<I, Payload>>::kKind);

// Makes `payload` an empty message of `kind`; false where there is no such kind.
template <std::size_t... I>
bool emplace_kind(std::uint8_t kind, Payload& payload, std::index_sequence<I...>) {
  static_assert(((kKindNumber<I> == I + 1) && ...) && sizeof...(I) == kLastPayloadKind,
                "PayloadKind has the order of Payload's alternatives");
  return ((kind == kKindNumber<I> && (payload.emplace<I>(), true)) || ...);
}

bool emplace_kind(std::uint8_t kind, Payload& payload) {
  return emplace_kind(kind, payload, std::make_index_sequence<std::variant_size_v<Payload>>());
}

// ---- dtypes

struct WireType {
  std::uint8_t id;
  at::ScalarType dtype;
};

constexpr std::array<WireType, 7> kWireTypes{{{1, at::ScalarType::Float},
                                              {2, at::ScalarType::Double},
                                              {3, at::ScalarType::Half},
                                              {4, at::ScalarType::BFloat16},
                                              {5, at::ScalarType::Int},
                                              {6, at::ScalarType::Long},
                                              {7, at::ScalarType::Byte}}};

std::uint8_t wire_id(at::ScalarType dtype) {
  for (const WireType& t : kWireTypes)
    if (t.dtype == dtype) return t.id;
  GRAPEVINE_CHECK(false, "tensors of dtype ", dtype, " do not travel");
  return 0;
}

std::optional<at::ScalarType> dtype_of(std::uint8_t id) {
  for (const WireType& t : kWireTypes)
    if (t.id == id) return t.dtype;
  return std::nullopt;
}

// ---- Archives

class Writer {
 public:
  explicit Writer(EncodedHeader& out) : out_(out) {}

  template <class T>
  void operator()(const char*, const T& value) {
    static_assert(std::is_arithmetic_v<T>);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), bytes, bytes + sizeof value);  // little-endian, as this machine is
  }
  void operator()(const char* field, const Timestamp& time) {
    (*this)(field, std::int64_t{time.count()});
  }
  void operator()(const char* field, const bool& flag) {
    (*this)(field, static_cast<std::uint8_t>(flag));
  }
  void operator()(const char* field, const FrozenTensor& t) {
    const std::size_t dimensions = t.defined() ? t.sizes().size() : 0;
    GRAPEVINE_CHECK(dimensions <= kMaxTensorDimensions, field, " has ", dimensions, " dimensions");
    (*this)(field, t.defined() ? wire_id(t.dtype()) : std::uint8_t{0});
    (*this)(field, static_cast<std::uint8_t>(dimensions));
    zeros(field, 2);
    (*this)(field, t.nbytes());
    for (std::size_t i = 0; i < dimensions; ++i) (*this)(field, std::int64_t{t.sizes()[i]});
  }
  void operator()(const char* field, const std::string& type) {
    GRAPEVINE_CHECK(is_type_name(type), field, " is '", type, "', not 1..", kMaxExtensionType,
                    " letters, digits, '-', '_' and '.'");
    (*this)(field, static_cast<std::uint8_t>(type.size()));
    for (const char c : type) (*this)(field, c);
  }
  template <class T>
  void operator()(const char* field, const std::vector<T>& list) {
    GRAPEVINE_CHECK(list.size() <= kMostElements<T>, field, " has ", list.size(),
                    " elements, more than ", kMostElements<T>);
    (*this)(field, static_cast<std::uint8_t>(list.size()));
    for (const T& element : list) (*this)(field, element);
  }
  void zeros(const char*, std::size_t count) { out_.resize(out_.size() + count); }

 private:
  EncodedHeader& out_;
};

// Counts the bytes that Writer would write.
class Meter {
 public:
  template <class T>
  void operator()(const char*, const T&) {
    header_ += sizeof(T);
  }
  void operator()(const char*, const FrozenTensor& t) {
    header_ += 12 + (t.defined() ? 8 * t.sizes().size() : 0);
    payload_ += t.nbytes();
  }
  void operator()(const char*, const std::string& type) { header_ += 1 + type.size(); }
  template <class T>
  void operator()(const char* field, const std::vector<T>& list) {
    header_ += 1;
    for (const T& element : list) (*this)(field, element);
  }
  void zeros(const char*, std::size_t count) { header_ += count; }

  std::size_t header() const { return header_; }
  std::uint64_t payload() const { return payload_; }

 private:
  std::size_t header_ = 8 + sizeof(std::uint32_t);  // magic to the header's length
  std::uint64_t payload_ = 0;
};

class TensorCollector {
 public:
  template <class T>
  void operator()(const char*, T&) {}
  void operator()(const char*, const FrozenTensor& t) { tensors.push_back(t); }
  void operator()(const char*, const std::vector<FrozenTensor>& list) {
    tensors.insert(tensors.end(), list.begin(), list.end());
  }

  std::vector<FrozenTensor> tensors;
};

class TensorFiller {
 public:
  explicit TensorFiller(std::vector<FrozenTensor> tensors) : tensors_(std::move(tensors)) {}

  template <class T>
  void operator()(const char*, T&) {}
  void operator()(const char*, FrozenTensor& t) { t = std::move(tensors_[next_++]); }
  void operator()(const char* field, std::vector<FrozenTensor>& list) {
    for (FrozenTensor& t : list) (*this)(field, t);
  }

 private:
  std::vector<FrozenTensor> tensors_;
  std::size_t next_ = 0;
};

Error refused(const std::string& what) {
  return {Errc::protocol,
          "message refused: " + what +
              "; the sender runs another version or job, or the bytes were damaged"};
}

// Reads the bytes of Writer. After the first error every value is zero and the error is kept.
class Reader {
 public:
  Reader(const std::byte* data, std::size_t size, const CodecLimits& limits)
      : data_(data), size_(size), limits_(limits) {}

  template <class T>
  void operator()(const char* field, T& value) {
    value = T{};
    if (!take(field, sizeof value)) return;
    std::memcpy(&value, data_ + at_, sizeof value);
    at_ += sizeof value;
  }
  void operator()(const char* field, bool& flag) {
    std::uint8_t byte = 0;
    (*this)(field, byte);
    if (byte > 1) fail(field, "is " + std::to_string(byte) + ", neither 0 nor 1");
    flag = byte == 1;
  }
  void operator()(const char* field, Timestamp& time) {
    std::int64_t ns = 0;
    (*this)(field, ns);
    time = Timestamp(ns);
  }
  void operator()(const char* field, FrozenTensor& t) {
    t = FrozenTensor();
    tensors_.push_back(descriptor(field));
  }
  void operator()(const char* field, std::string& type) {
    type.resize(length(field, kMaxExtensionType));
    for (char& c : type) (*this)(field, c);
    if (!is_type_name(type)) fail(field, "is no name of a type");
  }
  template <class T>
  void operator()(const char* field, std::vector<T>& list) {
    list.resize(length(field, kMostElements<T>));
    for (T& element : list) (*this)(field, element);
  }
  void zeros(const char* field, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint8_t byte = 0;
      (*this)(field, byte);
      if (byte != 0) fail(field, "is not zero");
    }
  }

  void check_rank(const char* field, Rank rank) {
    if (rank < 0 || rank >= limits_.world_size)
      fail(field, "is " + std::to_string(rank) + ", outside the world of " +
                      std::to_string(limits_.world_size) + " ranks");
  }
  void fail(const char* field, const std::string& what) {
    if (!error_) error_ = refused(std::string("field ") + field + " " + what);
  }

  std::size_t position() const { return at_; }
  const std::optional<Error>& error() const { return error_; }
  std::vector<TensorDescriptor>& tensors() { return tensors_; }

 private:
  bool take(const char* field, std::size_t count) {
    if (!error_ && size_ - at_ < count) fail(field, "is cut off");
    return !error_;
  }
  // Of a text or list.
  std::size_t length(const char* field, std::size_t most) {
    std::uint8_t count = 0;
    (*this)(field, count);
    if (count > most)
      fail(field, "has " + std::to_string(count) + " elements, beyond the limit of " +
                      std::to_string(most));
    return error_ ? 0 : count;
  }
  TensorDescriptor descriptor(const char* field);
  void check_lengths(const char* field, const TensorDescriptor& t);

  const std::byte* data_;
  std::size_t size_;
  const CodecLimits& limits_;
  std::size_t at_ = 0;
  std::uint64_t payload_bytes_ = 0;
  std::vector<TensorDescriptor> tensors_;
  std::optional<Error> error_;
};

TensorDescriptor Reader::descriptor(const char* field) {
  TensorDescriptor t;
  std::uint8_t id = 0;
  std::uint8_t dimensions = 0;
  (*this)(field, id);
  (*this)(field, dimensions);
  zeros(field, 2);
  (*this)(field, t.bytes);
  const std::optional<at::ScalarType> dtype = dtype_of(id);
  if (dtype) t.dtype = *dtype;
  t.present = dtype.has_value();
  if (id != 0 && !dtype) fail(field, "has the unknown dtype " + std::to_string(id));
  if (dimensions > (t.present ? kMaxTensorDimensions : 0))
    fail(field, "has " + std::to_string(dimensions) + " dimensions");
  if (error_) return t;
  t.sizes.resize(dimensions);
  for (std::int64_t& size : t.sizes) (*this)(field, size);
  check_lengths(field, t);
  return t;
}

// The product counts an empty dimension as 1: at::empty multiplies strides that way, so this bounds
// its arithmetic as well as its memory.
void Reader::check_lengths(const char* field, const TensorDescriptor& t) {
  std::int64_t elements = t.present ? 1 : 0;
  std::int64_t stride = 1;
  for (const std::int64_t size : t.sizes) {
    if (size < 0 || size > limits_.max_elements / stride)
      return fail(field, "has a size of " + std::to_string(size) + ", beyond the limit of " +
                             std::to_string(limits_.max_elements) + " elements");
    stride *= std::max<std::int64_t>(size, 1);
    elements = size == 0 ? 0 : elements * size;
  }
  const std::uint64_t item = t.present ? at::elementSize(t.dtype) : 0;
  if (t.bytes % std::max<std::uint64_t>(item, 1) != 0 ||
      (item == 0 ? t.bytes : t.bytes / item) != static_cast<std::uint64_t>(elements))
    return fail(field, "claims " + std::to_string(t.bytes) + " bytes for " +
                           std::to_string(elements) + " elements of " + std::to_string(item));
  if (t.bytes > limits_.max_payload_bytes - payload_bytes_)
    return fail(field, "claims " + std::to_string(t.bytes) + " bytes, beyond the limit of " +
                           std::to_string(limits_.max_payload_bytes) + " per message");
  payload_bytes_ += t.bytes;
}

Meter meter(const Envelope& envelope) {
  Meter m;
  envelope_fields(m, envelope);
  payload_fields(m, envelope.payload);
  return m;
}

// REQUIRES: header_size() accepted the prefix. Returns the kind.
std::uint8_t skip_prefix(Reader& reader) {
  std::uint32_t skipped = 0;
  std::uint16_t version = 0;
  std::uint8_t kind = 0;
  reader("magic", skipped);
  reader("format version", version);
  reader("payload kind", kind);
  reader.zeros("reserved", 1);
  reader("header length", skipped);
  return kind;
}

}  // namespace

std::uint64_t DecodedHeader::payload_bytes() const {
  std::uint64_t total = 0;
  for (const TensorDescriptor& t : tensors) total += t.bytes;
  return total;
}

EncodedHeader encode_header(const Envelope& envelope) {
  const std::size_t size = meter(envelope).header();
  GRAPEVINE_CHECK(size <= kMaxHeaderBytes, "a header of ", size, " bytes");
  EncodedHeader out;
  out.reserve(size);
  Writer write(out);
  write("magic", kMagic);
  write("format version", kCodecVersion);
  write("payload kind", static_cast<std::uint8_t>(kind_of(envelope.payload)));
  write.zeros("reserved", 1);
  write("header length", static_cast<std::uint32_t>(size));
  envelope_fields(write, envelope);
  payload_fields(write, envelope.payload);
  GRAPEVINE_CHECK(out.size() == size, "header of ", out.size(), " bytes announced as ", size);
  return out;
}

std::vector<FrozenTensor> payload_of(const Envelope& envelope) {
  TensorCollector collector;
  payload_fields(collector, envelope.payload);
  return std::move(collector.tensors);
}

std::string payload_name(const Payload& payload) {
  if (const auto* extension = std::get_if<Extension>(&payload)) return extension->type;
  return name_of(kind_of(payload));
}

std::uint64_t wire_size(const Envelope& envelope) {
  const Meter m = meter(envelope);
  return m.header() + m.payload();
}

Expected<std::size_t> header_size(const std::byte* data, std::size_t size) {
  const CodecLimits no_limits;
  Reader reader(data, size, no_limits);
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t kind_and_zero = 0;
  std::uint32_t length = 0;
  reader("magic", magic);
  reader("format version", version);
  reader("payload kind", kind_and_zero);
  reader("header length", length);
  if (magic != kMagic) reader.fail("magic", "is not that of a grapevine message");
  if (version != kCodecVersion)
    reader.fail("format version", "is " + std::to_string(version) + ", this build reads " +
                                      std::to_string(kCodecVersion));
  if (length < kHeaderPrefixBytes || length > kMaxHeaderBytes)
    reader.fail("header length", "is " + std::to_string(length) + ", outside " +
                                     std::to_string(kHeaderPrefixBytes) + ".." +
                                     std::to_string(kMaxHeaderBytes));
  if (reader.error()) return *reader.error();
  return std::size_t{length};
}

Expected<DecodedHeader> decode_header(const std::byte* data, std::size_t size,
                                      const CodecLimits& limits) {
  const Expected<std::size_t> announced = header_size(data, size);
  if (!announced) return announced.error();
  Reader reader(data, size, limits);
  DecodedHeader header;
  Envelope& e = header.envelope;
  const std::uint8_t kind = skip_prefix(reader);
  envelope_fields(reader, e);
  reader.check_rank("from", e.from);
  reader.check_rank("to", e.to);
  reader.check_rank("stamp.origin", e.stamp.origin);
  if (!emplace_kind(kind, e.payload)) reader.fail("payload kind", "is " + std::to_string(kind));
  payload_fields(reader, e.payload);
  if (reader.position() != *announced || reader.position() != size)
    reader.fail("header length", "is " + std::to_string(*announced) + " in " +
                                     std::to_string(size) + " bytes, the fields take " +
                                     std::to_string(reader.position()));
  if (reader.error()) return *reader.error();
  header.tensors = std::move(reader.tensors());
  return header;
}

std::vector<at::Tensor> allocate_payload(const DecodedHeader& header) {
  std::vector<at::Tensor> payload;
  for (const TensorDescriptor& t : header.tensors)
    payload.push_back(t.present ? at::Tensor(at::detail::empty_cpu(t.sizes, t.dtype))
                                : at::Tensor());
  return payload;
}

Expected<Envelope> assemble(DecodedHeader header, std::vector<at::Tensor> payload) {
  if (payload.size() != header.tensors.size())
    return refused(std::to_string(payload.size()) + " tensors for a header that describes " +
                   std::to_string(header.tensors.size()));
  std::vector<FrozenTensor> frozen;
  for (std::size_t i = 0; i < payload.size(); ++i) {
    const TensorDescriptor& wanted = header.tensors[i];
    at::Tensor& t = payload[i];
    if (t.defined() != wanted.present ||
        (t.defined() && (t.scalar_type() != wanted.dtype || t.sizes() != wanted.sizes)))
      return refused("tensor " + std::to_string(i) + " is not of its header's dtype and shape");
    frozen.push_back(t.defined() ? FrozenTensor::freeze(std::move(t)) : FrozenTensor());
  }
  TensorFiller filler(std::move(frozen));
  payload_fields(filler, header.envelope.payload);
  return std::move(header.envelope);
}

std::vector<std::byte> encode(const Envelope& envelope) {
  const std::uint64_t size = wire_size(envelope);
  std::vector<std::byte> out = encode_header(envelope);
  out.reserve(size);
  for (const FrozenTensor& t : payload_of(envelope)) {
    if (t.nbytes() == 0) continue;
    GRAPEVINE_CHECK(t.device().is_cpu(), "encode of a tensor on ", t.device());
    const auto* bytes = static_cast<const std::byte*>(t.raw());
    out.insert(out.end(), bytes, bytes + t.nbytes());
  }
  return out;
}

Expected<Envelope> decode(const std::byte* data, std::size_t size, const CodecLimits& limits) {
  const Expected<std::size_t> header_bytes = header_size(data, size);
  if (!header_bytes) return header_bytes.error();
  if (*header_bytes > size)
    return refused("field header length is " + std::to_string(*header_bytes) + " of " +
                   std::to_string(size) + " bytes");
  Expected<DecodedHeader> header = decode_header(data, *header_bytes, limits);
  if (!header) return header.error();
  if (header->payload_bytes() != size - *header_bytes)
    return refused("field payload has " + std::to_string(size - *header_bytes) +
                   " bytes, the header describes " + std::to_string(header->payload_bytes()));
  std::vector<at::Tensor> payload = allocate_payload(*header);
  const std::byte* from = data + *header_bytes;
  for (std::size_t i = 0; i < payload.size(); ++i) {
    const std::uint64_t bytes = header->tensors[i].bytes;
    if (bytes > 0) std::memcpy(payload[i].data_ptr(), from, bytes);
    from += bytes;
  }
  return assemble(*std::move(header), std::move(payload));
}

}  // namespace grapevine
