// Hashes by which a page's Content-Security-Policy names the only scripts and styles that may run.
#pragma once
#include <string>
#include <string_view>

namespace grapevine {

// "'sha256-…'" of the content of an element.
std::string content_hash(std::string_view content);

}  // namespace grapevine
