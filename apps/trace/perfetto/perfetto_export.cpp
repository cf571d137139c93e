#include "apps/trace/perfetto/perfetto_export.hpp"

#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "apps/trace/perfetto/chrome_file.hpp"
#include "apps/trace/perfetto/perfetto_file.hpp"
#include "apps/trace/perfetto/timeline.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

bool is_chrome(const std::string& path) { return fs::path(path).extension() == ".json"; }

}  // namespace

Expected<void> check_perfetto_path(const std::string& path) {
  if (is_chrome(path) || fs::path(path).extension() == ".pftrace") return {};
  return bad_input(
      fmt::format("--perfetto {}: the name must end in .pftrace (for ui.perfetto.dev) or .json "
                  "(Chrome's trace events, for small runs)",
                  path));
}

Expected<void> export_perfetto(MergedTrace& trace, const std::string& path) {
  if (auto checked = check_perfetto_path(path); !checked) return checked;
  if (is_chrome(path) && trace.records() > kMostChromeRecords)
    return bad_input(fmt::format(
        "--perfetto {}: the trace has {} records, and .json is for at most {}: write {}", path,
        trace.records(), kMostChromeRecords,
        fs::path(path).replace_extension(".pftrace").string()));
  auto sink = is_chrome(path) ? make_chrome_file(path) : make_perfetto_file(path);
  if (!sink) return sink.error();
  TraceSurvey survey(trace.ranks());
  trace.rewind();
  while (const TraceRecord* record = trace.next()) survey.learn(*record);
  trace.rewind();
  Timeline timeline(trace, survey, **sink);
  while (const TraceRecord* record = trace.next()) {
    timeline.add(*record);
    if ((*sink)->failed()) break;
  }
  timeline.finish();
  trace.rewind();
  return (*sink)->finish();
}

}  // namespace grapevine
