// The page of a running job at its metrics port.
#pragma once
#include <string>
#include <string_view>

namespace grapevine {

// The texts of which it is made; the build embeds them (cmake/embed_texts.cmake).
extern const std::string_view kLiveHtml;  // page/live.html, with {{NAMES}} to be filled in
extern const std::string_view kLiveCss;   // page/live.css
extern const std::string_view kLiveJs;    // page/live.js

// One document without any other resource; its script asks `status.json` beside it, once a second.
std::string live_page();
// Its Content-Security-Policy: nothing else runs in it, and it asks no other server.
std::string live_page_policy();

}  // namespace grapevine
