// The texts of which the page is made; the build embeds them (cmake/embed_texts.cmake).
#pragma once
#include <string_view>

namespace grapevine {

extern const std::string_view kReportHtml;    // page/report.html, with {{NAMES}} to be filled in
extern const std::string_view kReportCss;     // page/report.css
extern const std::string_view kReportJs;      // page/report.js
extern const std::string_view kChartLibrary;  // Chart.js, of the package libjs-chart.js
extern const std::string_view kChartLicence;  // page/chart_licence.txt

}  // namespace grapevine
