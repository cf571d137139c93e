// Tables of all wiring keys and of all presets.
#pragma once
#include <ostream>

namespace grapevine {

enum class TableFormat { text, json, markdown };

// Values, default and meaning of each key, and with which other keys it counts.
void print_keys(TableFormat format, std::ostream& out);
// Name, title, paper and keys of each preset.
void print_presets(TableFormat format, std::ostream& out);

}  // namespace grapevine
