// Operations of one process that `grapevine bench` times, in turns.
#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "messages/expected.hpp"

namespace grapevine {

struct BenchOperation {
  std::string name;
  double bytes = 0;  // read and written, once each; of `bandwidth_gbps`
  std::function<Expected<void>()> run;
};

// The seconds of each operation, by operation and iteration. The operations of an iteration follow
// each other, so that all see the same machine. Errors: the first one of an operation.
Expected<std::vector<std::vector<double>>> time_operations(
    const std::vector<BenchOperation>& operations, std::int64_t iterations);

// A line of --json: the keys of all kinds (INTERFACE: kind, transport, ranks, bytes, times and
// bandwidth), the operation, and those of `more`.
void print_operation_json(std::ostream& out, const std::string& kind, std::int64_t bytes,
                          const BenchOperation& operation, std::vector<double> seconds,
                          const nlohmann::ordered_json& more);

// For people: a title and a line for each operation. `meaning`: of the bandwidth; `place`: the
// heading of the places in the lines.
void print_operations_title(std::ostream& out, const std::string& kind, std::int64_t iterations,
                            const std::string& meaning, const std::string& place = "bytes");
// `place`: what stands before the name of the operation, e.g. its size.
void print_operation_line(std::ostream& out, const std::string& place,
                          const BenchOperation& operation, std::vector<double> seconds);

}  // namespace grapevine
