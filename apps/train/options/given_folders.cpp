#include "apps/train/options/given_folders.hpp"

#include <filesystem>
#include <system_error>

#include "apps/train/resume/saved_job.hpp"
#include "apps/train/train_options.hpp"

namespace grapevine {

GivenFolders given_folders(const std::vector<std::string>& arguments) {
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
  return {given_folder(options), options.resume};
}

}  // namespace grapevine
