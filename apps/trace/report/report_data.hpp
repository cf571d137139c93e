// The data of the page as JSON: what page/report.js draws.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/trace/report/report_collector.hpp"

namespace grapevine {

struct ReportInputs {
  std::string run;  // its folder: metrics.csv, summary.json and job.toml are read where they exist
  const ReportCollector* collector = nullptr;  // after finish()
  std::int32_t workers = 0, servers = 0, processes = 1;
  // The object of `trace --json`. Keys that it lacks are left out of the page.
  nlohmann::ordered_json figures = nlohmann::ordered_json::object();
  // The list of `trace --blame all --json`, the greatest share first.
  nlohmann::ordered_json culprits = nlohmann::ordered_json::array();
  std::vector<std::string> chains;  // the lines of `trace --blame slowest`
};

// Bounded, whatever the length of the run: at most 256 x 240 cells of the heat map, 256 x 256 of
// the matrix, 300 points of a curve, 40 bars, 200 edges, 512 ranks, 100 culprits, 64 KiB of chains.
// REQUIRES: inputs.collector.
nlohmann::ordered_json report_data(const ReportInputs& inputs);

// Bars [first value, last value, how many] of a histogram {"value": how many}: one of each value
// where these are few, else of equal width; the last has the rest of a long tail.
nlohmann::ordered_json histogram_bars(const nlohmann::ordered_json& histogram);

}  // namespace grapevine
