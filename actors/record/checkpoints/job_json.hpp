// job.json of a checkpoint, without the files beside it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/record/file_mark.hpp"

namespace grapevine {

inline constexpr int kCheckpointVersion = 2;

// By rank; nothing for lost ranks, and in checkpoints of versions that wrote none.
using RankMarks = std::vector<std::optional<FileMark>>;

// Reads the text of job.json into `checkpoint`: identity, lost and former ranks. Returns the marks
// of the ranks' files, one for each rank. `path` names the file in errors (bad_input): the text is
// no document of this version, or its numbers are those of no run.
Expected<RankMarks> parse_job_json(const std::string& text, const std::string& path,
                                   Checkpoint& checkpoint);

// Of an entry of "files". Throws nlohmann::json::exception for anything else.
FileMark mark_in(const nlohmann::json& file);

}  // namespace grapevine
