// A BlameReport as JSON, and as text for people.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "apps/trace/blame.hpp"

namespace grapevine {

// Seconds everywhere; ranks and steps that there are not: -1.
//   about all: {"run_seconds", "waited_seconds", "waits", "culprits": [{"kind", "rank", "peer",
//     "seconds", "share", "own_seconds", "stalls", "always_slow", "usual_seconds", "worst"}],
//     "notes"}, worst: null or a wait
//   else: {"run_seconds", "steps": [{"rank", "step", "begin_s", "seconds", "usual_seconds",
//     "waited_seconds", "own": [span], "waits": [wait], "text"}], "notes"}
//   wait: {"rank", "step", "begin_s", "seconds", "left_out", "path": [span]}, from its end
//   backwards span: {"kind", "rank", "peer", "begin_s", "seconds", "usual_seconds",
//   "inside_seconds",
//     "unusual_seconds", "paused_seconds", "paused_rank", "payload", "operation", "index", "step"}
nlohmann::json json_of(const BlameReport& report);

// Lines, each with its end.
std::string text_of(const BlameReport& report);

// "rank 2, step 41: 512 ms (usual 11 ms): waited 498 ms for chunk 3 of operation 41 from rank 1,
// which computed 505 ms (usual 8 ms)". One line, without its end.
std::string sentence_of(const BlamedStep& step);

}  // namespace grapevine
