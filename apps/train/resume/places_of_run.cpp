#include "apps/train/resume/places_of_run.hpp"

#include <limits>

#include <toml++/toml.h>

#include "apps/train/options/given_run.hpp"
#include "apps/train/resume/saved_job.hpp"

namespace grapevine {
namespace {

std::int64_t number_of(const toml::table& job, const char* key, std::int64_t otherwise) {
  return job[key].value<std::int64_t>().value_or(otherwise);
}

}  // namespace

std::int32_t places_of_run(const std::vector<std::string>& arguments) {
  const GivenRun given = given_run(arguments);
  if (given.resume.empty()) return 0;
  const auto saved = find_saved_job(given.resume);
  if (!saved || !*saved) return 0;
  try {
    const toml::table job = toml::parse((*saved)->text);
    const std::int64_t each = given.workers > 0 ? given.workers : number_of(job, "workers", 1);
    const std::int64_t places = each > 0 ? number_of(job, "max-ranks", 0) / each : 0;
    const bool fits = places > 0 && places <= std::numeric_limits<std::int32_t>::max();
    return fits ? static_cast<std::int32_t>(places) : 0;
  } catch (const toml::parse_error&) {
    return 0;
  }
}

}  // namespace grapevine
