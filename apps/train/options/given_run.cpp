#include "apps/train/options/given_run.hpp"

#include <filesystem>
#include <system_error>

#include "apps/train/resume/saved_job.hpp"
#include "apps/train/train_options.hpp"

namespace grapevine {

GivenRun given_run(const std::vector<std::string>& arguments) {
  CLI::App app;
  TrainOptions options;
  declare_train_options(app, options);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError&) {
    return {};
  }
  std::error_code ignored;
  const bool readable_again = std::filesystem::is_regular_file(options.job_file, ignored);
  if (readable_again && !read_job_file(app, options)) return {};
  if (options.resume == "auto" && !settle_resume(options)) return {};
  const bool has_workers = app.get_option("--workers")->count() > 0;
  return {given_folder(options), options.resume, has_workers ? options.workers : 0};
}

}  // namespace grapevine
