// The options and the final figures of a run, from the files in its folder.
#pragma once
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "messages/expected.hpp"

namespace grapevine {

struct RunRecord {
  std::string folder;  // as the user gave it
  // Of job.toml; "wiring.KEY" for keys of the wiring. The workers of a run that has ended are those
  // of all its processes.
  std::map<std::string, std::string> options;
  // An empty object where the run has not ended: also where it is continued, or was killed while it
  // was, and a summary of its part before is still there.
  nlohmann::ordered_json summary;
  bool running = false;  // on this machine
};

// Errors (bad_input): no such folder, no job.toml in it or one that is damaged. A damaged summary
// counts as a missing one.
Expected<RunRecord> read_run_record(const std::string& folder);

}  // namespace grapevine
