// Provenance as JSON, and for people.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/console/text/terminal.hpp"
#include "apps/trace/provenance/provenance.hpp"

namespace grapevine {

// "0-3, 6".
std::string ranks_in_words(const std::vector<Rank>& ranks);

// The object of `trace RUN --why RANK:STEP --json` (docs/tracing.md). What the trace does not have
// is null.
nlohmann::ordered_json provenance_json(const Provenance& provenance,
                                       const std::vector<std::string>& missing);

// `workers`: the ranks after them serve. `style`: of the terminal behind `out`.
void print_provenance(const Provenance& provenance, std::int32_t workers,
                      const TerminalStyle& style, std::ostream& out);

}  // namespace grapevine
