// All records of one trace file in memory, for tests.
#pragma once
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "messages/trace/trace_file.hpp"

namespace grapevine {

// In the order of the file. Errors as of index_trace_file(), (io), and (protocol) of damaged
// records.
inline Expected<std::vector<TraceRecord>> read_trace_file(const std::string& path) {
  const auto index = index_trace_file(path);
  if (!index) return index.error();
  const OpenFile file(std::fopen(path.c_str(), "rb"));
  if (!file) return Error{Errc::io, path + " cannot be opened"};
  std::vector<TraceRecord> all, some;
  std::string body;
  const std::int32_t ranks = index->header.most_ranks();
  for (const RecordsFrame& frame : index->records) {
    if (auto read = read_frame(file.get(), frame, body); !read) return read.error();
    if (auto decoded = decode_records(body, some, ranks); !decoded) return decoded.error();
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace grapevine
