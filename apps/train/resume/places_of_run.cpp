#include "apps/train/resume/places_of_run.hpp"

#include <limits>

#include <toml++/toml.h>

#include "apps/train/resume/saved_job.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

// The newest of "--name=VALUE"; empty: none.
std::string value_of(const std::vector<std::string>& arguments, const std::string& name) {
  const std::string start = "--" + name + "=";
  std::string value;
  for (const std::string& argument : arguments)
    if (argument.rfind(start, 0) == 0) value = argument.substr(start.size());
  return value;
}

std::int64_t number_of(const toml::table& job, const char* key, std::int64_t otherwise) {
  return job[key].value<std::int64_t>().value_or(otherwise);
}

}  // namespace

std::int32_t places_of_run(const std::vector<std::string>& arguments) {
  TrainOptions options;
  options.resume = value_of(arguments, "resume");
  options.out = value_of(arguments, "out");
  if (!settle_resume(options) || options.resume.empty()) return 0;
  const auto saved = find_saved_job(options.resume);
  if (!saved || !*saved) return 0;
  try {
    const toml::table job = toml::parse((*saved)->text);
    const std::string typed = value_of(arguments, "workers");
    const std::int64_t each =
        typed.empty() ? number_of(job, "workers", 1) : number_in<std::int64_t>(typed).value_or(0);
    const std::int64_t places = each > 0 ? number_of(job, "max-ranks", 0) / each : 0;
    const bool fits = places > 0 && places <= std::numeric_limits<std::int32_t>::max();
    return fits ? static_cast<std::int32_t>(places) : 0;
  } catch (const toml::parse_error&) {
    return 0;
  }
}

}  // namespace grapevine
