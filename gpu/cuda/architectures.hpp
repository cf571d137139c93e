// For which GPUs this build has kernels.
#pragma once
#include <cstdlib>
#include <sstream>
#include <string>

#include "messages/expected.hpp"

namespace grapevine::cuda {

// `built`: CMAKE_CUDA_ARCHITECTURES, e.g. "80-real,90": machine code runs on GPUs of
// the same major version and at least that minor one; PTX (an entry without "-real") on all newer
// ones. `gpu`: its name for the error; of compute capability `major`.`minor`. Errors: unavailable.
// Entries without a number ("native", "all") are taken to fit.
inline Expected<void> check_kernels(const std::string& built, const std::string& gpu, int major,
                                    int minor) {
  std::istringstream entries(built);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const int number = std::atoi(entry.c_str());
    if (number == 0) return {};
    const bool code = entry.find("-virtual") == std::string::npos;
    const bool ptx = entry.find("-real") == std::string::npos;
    if (code && major == number / 10 && minor >= number % 10) return {};
    if (ptx && 10 * major + minor >= number) return {};
  }
  const std::string own = std::to_string(major) + std::to_string(minor);
  return Error{Errc::unavailable, gpu + " has compute capability " + std::to_string(major) + "." +
                                      std::to_string(minor) +
                                      ", the CUDA kernels of this build are for " + built +
                                      ": configure with -DCMAKE_CUDA_ARCHITECTURES=" + own};
}

}  // namespace grapevine::cuda
