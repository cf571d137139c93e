#include "apps/plot/bytes_over_time.hpp"

#include <system_error>

namespace grapevine {

Expected<std::vector<BytesAt>> bytes_over_time(const std::filesystem::path& run_folder) {
  std::error_code none;
  if (!std::filesystem::is_directory(run_folder / "trace", none))
    return bad_input(run_folder.string() +
                     ": has no trace; use --x time, or repeat the run with --trace on");
  return bad_input(run_folder.string() + ": --x bytes cannot be read from its trace; use --x time");
}

}  // namespace grapevine
