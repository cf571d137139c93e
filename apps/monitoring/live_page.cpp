#include "apps/monitoring/live_page.hpp"

#include "apps/console/content_hash.hpp"

namespace grapevine {
namespace {

void fill(std::string& page, std::string_view name, std::string_view by) {
  page.replace(page.find(name), name.size(), by);
}

}  // namespace

std::string live_page() {
  std::string page(kLiveHtml);
  fill(page, "{{SCRIPT}}", kLiveJs);  // the last one in the page first: texts may contain names
  fill(page, "{{STYLE}}", kLiveCss);
  return page;
}

std::string live_page_policy() {
  return "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; img-src "
         "data:; connect-src 'self'; script-src " +
         content_hash(kLiveJs) + "; style-src " + content_hash(kLiveCss);
}

}  // namespace grapevine
