// The status of a running job for people: 'control status' and 'top'.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "messages/expected.hpp"

namespace grapevine {

// Of one rank; NaN: not measured.
struct RankRow {
  std::int64_t rank = 0, process = 0, steps = 0, bytes = 0;
  std::string state;
  double steps_per_s = 0, samples_per_s = 0, loss = 0, staleness = 0;
  double waits_s = 0;      // at the moment, or without an answer
  std::string waits_for;   // "rank 2", "ranks 1, 2", "12 ranks", "any rank" or empty
  double bytes_per_s = 0;  // since another status; NaN: there was none
  double queued = 0;       // bytes that wait to be sent, of its process
};

enum class RowOrder { rank, step, rate, staleness, wait, bytes };

// What people see of a status.
struct StatusView {
  std::string title;               // "sgp: lenet on glyphs"
  std::vector<std::string> facts;  // lines
  std::vector<RankRow> ranks;
  std::vector<std::string> waits;   // chains of waits that last
  std::vector<std::string> events;  // newest last
  std::string stage;
  double time_s = 0;
};

// Errors (protocol): it is no status. `before`: an earlier one for rates of bytes, or null.
Expected<StatusView> view_of(const nlohmann::ordered_json& status, const StatusView* before);

// Largest first, but for ranks.
void sort_rows(std::vector<RankRow>& rows, RowOrder order);

// The ranks as a table, with rates of bytes where they are known, no line wider than `columns`. Of
// the columns those are there that fit whole, the most important ones first; from kWideTable on
// all of them.
inline constexpr int kWideTable = 88;
std::vector<std::string> rank_lines(const std::vector<RankRow>& rows, int columns);

// All of it, for a pipe or a file, or for a terminal with so many columns.
inline constexpr int kAnyWidth = 1000;
std::string text_of(const StatusView& view, int columns = kAnyWidth);

}  // namespace grapevine
