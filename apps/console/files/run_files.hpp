// The files of a run's folder, as other commands read them: of a run of any age, by a user's path.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "messages/expected.hpp"

namespace grapevine {

// Whether the folder has a file of a run.
bool is_run(const std::filesystem::path& folder);
// The error (bad_input) of each command where it has none.
Error no_run_there(const std::filesystem::path& folder);

// Empty where it is missing, not a regular file, or larger than 16 MiB.
std::string run_file_text(const std::filesystem::path& file);

// summary.json, which a run writes at its end; nothing where it is missing or damaged.
std::optional<nlohmann::ordered_json> run_summary(const std::filesystem::path& folder);

}  // namespace grapevine
