// CIFAR-10 as JPEG files, where this machine has them.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace grapevine {

// The first 40 training and test images of each class, unpacked once per build folder, in the
// layout of images:DIR; empty where they are not in shared/data or cannot be unpacked.
inline std::string cifar_folder() {
  const std::string archive = GRAPEVINE_SOURCE_DIR "/../shared/data/cifar10-jpeg.tar.xz";
  const std::string folder = GRAPEVINE_BINARY_DIR "/testdata/cifar10-jpeg-subset";
  if (std::filesystem::exists(folder)) return folder;
  if (!std::filesystem::exists(archive)) return "";
  // Another run of this test may unpack at the same time: unpack aside, then rename.
  std::filesystem::create_directories(GRAPEVINE_BINARY_DIR "/testdata");
  std::string aside = folder + "-XXXXXX";
  if (mkdtemp(aside.data()) == nullptr) return "";
  const std::string command =
      "tar -xf '" + archive + "' -C '" + aside + "' --wildcards 't*/*/00[0-3]?.jpg'";
  std::error_code lost_the_race;
  if (std::system(command.c_str()) == 0) std::filesystem::rename(aside, folder, lost_the_race);
  std::filesystem::remove_all(aside, lost_the_race);
  return std::filesystem::exists(folder) ? folder : "";
}

}  // namespace grapevine
