#include "apps/trace/report/report_page.hpp"

#include <map>
#include <string_view>

#include "actors/record/files.hpp"
#include "apps/console/content_hash.hpp"
#include "apps/trace/report/report_assets.hpp"

namespace grapevine {
namespace {

std::string content_policy() {
  return "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; script-src " +
         content_hash(kChartLibrary) + ' ' + content_hash(kReportJs) + "; style-src " +
         content_hash(kReportCss);
}

// Replaces each {{NAME}} of the template once: what it is replaced by may contain anything.
std::string filled(std::string_view page, const std::map<std::string_view, std::string_view>& by) {
  std::string out;
  while (true) {
    const std::size_t begin = page.find("{{");
    const std::size_t end = begin == std::string_view::npos ? begin : page.find("}}", begin);
    out += page.substr(0, begin);
    if (end == std::string_view::npos) break;
    out += by.at(page.substr(begin + 2, end - begin - 2));
    page.remove_prefix(end + 2);
  }
  return out;
}

}  // namespace

std::string json_for_script(const nlohmann::ordered_json& data) {
  // Names of files need not be UTF-8.
  const std::string json =
      data.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else if (c == '>')
      out += "\\u003e";
    else if (c == '&')
      out += "\\u0026";
    else
      out += c;
  }
  return out;
}

std::string report_html(const ReportInputs& inputs) {
  const std::string policy = content_policy();
  const std::string data = json_for_script(report_data(inputs));
  return filled(kReportHtml, {{"POLICY", policy},
                              {"STYLE", kReportCss},
                              {"LIBRARY", kChartLibrary},
                              {"LICENCE", kChartLicence},
                              {"DATA", data},
                              {"SCRIPT", kReportJs}});
}

Expected<void> write_report(const std::string& path, const ReportInputs& inputs) {
  return write_file_atomically(path, report_html(inputs));
}

}  // namespace grapevine
