// What the files of a run's folder say of the run beside its trace.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace grapevine {

struct RunFacts {
  // The keys of summary.json; of a run without one: algorithm, model, data, workers, seed of
  // job.toml. Empty where neither can be read.
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  bool ended = false;                // there is a summary
  std::vector<std::string> missing;  // one sentence each: which file, and what is not known then
};

// The folder with the other files of the run, where `given` is that of its trace files; else
// `given`.
std::string folder_of_run(const std::string& given);

// `run`: a run's folder.
RunFacts read_run_facts(const std::string& run);

}  // namespace grapevine
