#include "apps/evaluate/confusion_figure.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace grapevine {
namespace {

constexpr std::int64_t kMostNumbers = 20;  // classes whose numbers can be read in their fields
constexpr std::int64_t kMostNames = 40;    // classes whose names fit beside the axes
constexpr std::size_t kLongestName = 16, kLongestTitle = 80;  // characters
constexpr int kFieldArea = 620;                               // pixels
constexpr int kMargins = 190;

// Whether `text` is UTF-8, as the encoding of the figure is.
bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

// In single quotes, where gnuplot expands nothing.
std::string quoted_text(const std::string& whole, std::size_t most_characters) {
  const bool utf8 = is_utf8(whole);
  std::string text = "'";
  std::size_t characters = 0;
  for (const char c : whole) {
    const auto byte = static_cast<unsigned char>(c);
    if (!(utf8 && continues_character(c)) && ++characters > most_characters) break;
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8)) {
      text += '?';
    } else {
      text += c;
      if (c == '\'') text += c;
    }
  }
  return text + "'";
}

std::string matrix_block(const std::string& name, const at::Tensor& rows) {
  const at::Tensor values = rows.to(at::kDouble).contiguous();
  const double* value = values.data_ptr<double>();
  std::string block = "$" + name + " << EOD\n";
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    for (std::int64_t j = 0; j < values.size(1); ++j)
      block += fmt::format("{}{:.6g}", j == 0 ? "" : " ", *value++);
    block += "\n";
  }
  return block + "EOD\n";
}

std::string name_tics(const std::vector<std::string>& names) {
  std::string tics;
  for (std::size_t i = 0; i < names.size(); ++i)
    tics += fmt::format("{}{} {}", i == 0 ? "" : ", ", quoted_text(names[i], kLongestName), i);
  return fmt::format("set xtics ({}) rotate by -45 noenhanced\nset ytics ({}) noenhanced\n", tics,
                     tics);
}

}  // namespace

std::string confusion_script(const at::Tensor& confusion, const std::vector<std::string>& names,
                             FigureFormat format, const std::string& title) {
  const std::int64_t classes = confusion.size(0);
  const at::Tensor counts = confusion.to(at::kDouble);
  const at::Tensor parts = counts / counts.sum(1, true).clamp_min(1);
  std::string script = "set encoding utf8\n";
  script += fmt::format("set terminal {} size {},{} noenhanced\nset output ARG1\n",
                        format == FigureFormat::svg ? "svg" : "pngcairo", kFieldArea + kMargins,
                        kFieldArea + kMargins);
  script += matrix_block("parts", parts) + matrix_block("counts", counts);
  script += "unset key\nset title " + quoted_text(title, kLongestTitle) + " noenhanced\n";
  script += "set palette defined (0 '#FFFFFF', 1 '#0072B2')\nset cbrange [0:1]\n";
  script += "set cblabel 'part of the labels of the class'\nset size ratio 1\n";
  script += fmt::format("set xrange [-0.5:{0}.5]\nset yrange [{0}.5:-0.5]\n", classes - 1);
  script += "set xlabel 'predicted class'\nset ylabel 'class'\n";
  if (!names.empty() && classes <= kMostNames)
    script += name_tics(names);
  else if (classes <= kMostNumbers)
    script += "set xtics 1\nset ytics 1\n";
  script += "plot $parts matrix using 1:2:3 with image pixels";
  if (classes <= kMostNumbers)
    script += ", $counts matrix using 1:2:(sprintf('%d', $3)) with labels";
  return script + "\nset output\n";
}

}  // namespace grapevine
