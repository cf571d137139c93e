// Texts of files, command lines and other processes that messages quote: a message is one line.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "messages/text/cut_to.hpp"

namespace grapevine {

// Line breaks and all else that steers a terminal; not what UTF-8 encodes beyond ASCII.
inline bool is_control_character(char c) {
  constexpr char kDelete = 0x7f;
  return static_cast<unsigned char>(c) < ' ' || c == kDelete;
}

inline bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(), &is_control_character);
}

// With '?' for each of them.
inline std::string without_control_characters(std::string text) {
  std::replace_if(text.begin(), text.end(), &is_control_character, '?');
  return text;
}

// A text from another process as one line: at most `most` bytes of it, see cut_to(), with
// `in_place` for each control character.
inline constexpr std::size_t kLongestForeignText = 4096;
inline std::string one_line(std::string text, std::size_t most = kLongestForeignText,
                            char in_place = ' ') {
  text = cut_to(std::move(text), most);
  std::replace_if(text.begin(), text.end(), &is_control_character, in_place);
  return text;
}

}  // namespace grapevine
