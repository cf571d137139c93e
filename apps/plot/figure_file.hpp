// The file of a figure: its format, and whether it may be replaced.
#pragma once
#include <filesystem>
#include <string>

#include "apps/plot/figure.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// By the end of the name that the user gave with `option`, .svg or .png. Errors (bad_input):
// another one.
Expected<FigureFormat> figure_format_of(const std::string& option,
                                        const std::filesystem::path& path);

// Whether a figure can be written there: nothing has the name, or an empty file, or a figure that
// signed_figure() signed. Errors (bad_input): another file, the folder is missing or not writable.
Expected<void> check_figure_path(const std::string& option, const std::filesystem::path& path);

// The bytes that gnuplot wrote, with a sign that they are a figure of this program, as valid XML or
// PNG. Errors (failed): the bytes are not such a figure.
Expected<std::string> signed_figure(FigureFormat format, std::string bytes);

}  // namespace grapevine
