#include "apps/zoo/data/own/npy_file.hpp"

#include <ATen/ATen.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "apps/zoo/data/own/mapped_file.hpp"
#include "messages/text/control_characters.hpp"

namespace grapevine {
namespace {

constexpr char kNpyMagic[] = "\x93NUMPY";
constexpr std::size_t kNpyMagicSize = 6;
constexpr std::size_t kMostDimensions = 8;

struct NpyHeader {
  std::string type;  // as NumPy writes it, "<f4"
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;  // of the values
};

// `array`: what is to be saved in place of ARRAY.
Error no_npy(const std::string& path, const std::string& why,
             const std::string& array = "numpy.ascontiguousarray(ARRAY)") {
  return bad_input(path + ": " + why + ": write the file with numpy.save(FILE, " + array + ")");
}

// What follows 'key': in the header's dict; empty where it is not there.
std::string_view entry_of(std::string_view header, const std::string& key) {
  const auto at = header.find("'" + key + "'");
  if (at == std::string_view::npos) return {};
  const auto colon = header.find(':', at);
  if (colon == std::string_view::npos) return {};
  std::string_view rest = header.substr(colon + 1);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

std::optional<std::vector<std::int64_t>> shape_of(std::string_view text) {
  const auto end = text.find(')');
  if (text.empty() || text.front() != '(' || end == std::string_view::npos) return std::nullopt;
  std::vector<std::int64_t> shape;
  for (text = text.substr(1, end - 1); !text.empty();) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) break;
    std::int64_t side = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), side);
    if (error != std::errc() || side < 0 || shape.size() == kMostDimensions) return std::nullopt;
    shape.push_back(side);
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    if (!text.empty() && text.front() == ',')
      text.remove_prefix(1);
    else if (!text.empty())
      return std::nullopt;
  }
  return shape;
}

Expected<NpyHeader> read_header(const std::string& path, const std::uint8_t* data,
                                std::size_t size) {
  if (size < 10 || std::memcmp(data, kNpyMagic, kNpyMagicSize) != 0)
    return no_npy(path, "is no .npy file");
  const int version = data[6];
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  if (version < 1 || version > 3 || size < 8 + length_bytes)
    return no_npy(path,
                  "is of version " + std::to_string(version) + " of the format, 1 to 3 are known");
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= std::size_t{data[8 + i]} << (8 * i);
  NpyHeader header;
  header.begin = 8 + length_bytes + length;
  if (length > size || header.begin > size) return no_npy(path, "its header is cut off");
  const std::string_view text(reinterpret_cast<const char*>(data + 8 + length_bytes), length);
  const std::string_view type = entry_of(text, "descr");
  const auto quote = type.substr(0, 1) == "'" ? type.find('\'', 1) : std::string_view::npos;
  if (quote == std::string_view::npos) return no_npy(path, "it holds records, not one array");
  header.type = type.substr(1, quote - 1);
  if (entry_of(text, "fortran_order").substr(0, 5) != "False")
    return no_npy(path, "its array is in Fortran order");
  auto shape = shape_of(entry_of(text, "shape"));
  if (!shape) return no_npy(path, "its header has no shape that can be read");
  header.shape = *std::move(shape);
  return header;
}

// The type without the sign of its order, which says nothing for single bytes.
std::optional<at::ScalarType> scalar_type(const std::string& type) {
  static const std::vector<std::pair<std::string, at::ScalarType>> types = {
      {"b1", at::kBool},  {"i1", at::kChar},  {"u1", at::kByte},
      {"i2", at::kShort}, {"i4", at::kInt},   {"i8", at::kLong},
      {"f2", at::kHalf},  {"f4", at::kFloat}, {"f8", at::kDouble}};
  for (const auto& [name, scalar] : types)
    if (type.substr(1) == name && (type[0] == '<' || type[0] == '|' || type[0] == '='))
      return scalar;
  return std::nullopt;
}

Error unknown_type(const std::string& path, const std::string& type) {
  constexpr std::size_t kLongestType = 64;  // the header may hold any text
  const std::string why = "values of type '" + one_line(type, kLongestType, '?') +
                          "' are not known; bool, integers of up to 64 bits with a sign or 32 "
                          "without, and floats are, in little endian";
  const std::string kind = type.empty() ? "" : type.substr(1), little = "<" + kind;
  if (kind == "O") {
    Error objects =
        no_npy(path,
               "its values are Python objects, which need numpy.load(..., allow_pickle=True), and "
               "only arrays of a numeric type are read",
               "ARRAY.astype('float32')");
    // Floats in place of labels would make the task a regression.
    objects.message += ", or 'int64' for labels and tokens";
    return objects;
  }
  if (kind == "u8") return no_npy(path, why, "ARRAY.astype('int64')");
  const bool other_order = kind == "u2" || kind == "u4" || (kind != "" && scalar_type(little));
  return other_order ? no_npy(path, why, "ARRAY.astype('" + little + "')") : no_npy(path, why);
}

template <class From, class To>
at::Tensor widened(const std::uint8_t* data, const std::vector<std::int64_t>& shape,
                   at::ScalarType type) {
  at::Tensor tensor = at::empty(shape, type);
  To* out = tensor.data_ptr<To>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    From value;
    std::memcpy(&value, data + static_cast<std::size_t>(i) * sizeof(From), sizeof(From));
    out[i] = static_cast<To>(value);
  }
  return tensor;
}

// The number of values, nothing where it is too large for any file.
std::optional<std::size_t> values_of(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t side : shape)
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(side), &count)) return std::nullopt;
  return count;
}

}  // namespace

Expected<at::Tensor> parse_npy(const std::string& path, const std::uint8_t* data, std::size_t size,
                               std::shared_ptr<const void> owner) {
  const auto header = read_header(path, data, size);
  if (!header) return header.error();
  const bool u16 = header->type == "<u2", u32 = header->type == "<u4";
  const auto type = u16 || u32                ? std::optional(at::kInt)
                    : header->type.size() < 2 ? std::nullopt
                                              : scalar_type(header->type);
  if (!type) return unknown_type(path, header->type);
  const std::size_t width = u16 ? 2 : u32 ? 4 : at::elementSize(*type);
  const auto values = values_of(header->shape);
  if (!values || *values > (size - header->begin) / width)
    return no_npy(path, "the array is cut off after " + std::to_string(size) + " bytes");
  const std::uint8_t* begin = data + header->begin;
  if (u16) return widened<std::uint16_t, std::int32_t>(begin, header->shape, at::kInt);
  if (u32) return widened<std::uint32_t, std::int64_t>(begin, header->shape, at::kLong);
  return at::from_blob(
      const_cast<std::uint8_t*>(begin), header->shape,
      [owner = std::move(owner)](void*) mutable { owner.reset(); }, at::TensorOptions(*type));
}

Expected<at::Tensor> map_npy(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) return file.error();
  return parse_npy(path, (*file)->data(), (*file)->size(), *file);
}

}  // namespace grapevine
