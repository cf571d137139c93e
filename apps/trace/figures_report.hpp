// The figures of a trace as JSON, and as tables for people.
#pragma once
#include <iosfwd>

#include <nlohmann/json.hpp>

#include "apps/console/text/terminal.hpp"
#include "apps/trace/trace_figures.hpp"
#include "messages/trace/merged_trace.hpp"

namespace grapevine {

// The object of `trace RUN --json` (docs/tracing.md). Figures that were not measured are null.
nlohmann::ordered_json figures_json(const MergedTrace& trace, const TraceFigures& figures);

// `style`: of the terminal behind `out`.
void print_figures(const MergedTrace& trace, const TraceFigures& figures,
                   const TerminalStyle& style, std::ostream& out);

}  // namespace grapevine
