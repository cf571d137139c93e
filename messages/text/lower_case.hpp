// ASCII letters in lower case; other bytes as they are.
#pragma once
#include <string>

namespace grapevine {

inline std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace grapevine
