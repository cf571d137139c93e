// TemporaryFolder: a new folder in $TMPDIR, removed with this object.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "messages/expected.hpp"

namespace grapevine {

class TemporaryFolder {
 public:
  // Errors (io): $TMPDIR is no folder that can be written.
  static Expected<std::unique_ptr<TemporaryFolder>> make() {
    std::error_code error;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    if (error) return Error{Errc::io, "no folder for temporary files: " + error.message()};
    std::string name = (parent / "grapevine-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      return Error{Errc::io, name + ": cannot be made: set TMPDIR to a folder that can be written"};
    return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(name));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

}  // namespace grapevine
