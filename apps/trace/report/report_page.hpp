// The page of a run: one HTML file that needs nothing else and asks for nothing.
#pragma once
#include <string>

#include "apps/trace/report/report_data.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Scripts, styles and data are in the page. Its Content-Security-Policy allows exactly them, by
// their hashes. Names that come from the run are in the data only, as JSON without '<', '>' and
// '&': no name can end the element. REQUIRES: inputs.collector.
std::string report_html(const ReportInputs& inputs);

// The same as a file, which appears under its name once it is whole. Errors (io): it cannot be
// written.
Expected<void> write_report(const std::string& path, const ReportInputs& inputs);

// JSON that may stand inside a <script> element, whatever its strings contain.
std::string json_for_script(const nlohmann::ordered_json& data);

}  // namespace grapevine
