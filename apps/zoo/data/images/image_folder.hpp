// Which image files a folder holds, by split and class.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

struct ImageEntry {
  std::int32_t folder = 0;  // index into ImageListing::folders
  std::int32_t label = 0;
  std::string file;
};

struct ImageListing {
  std::vector<std::string> classes;  // names, sorted by bytes: the index is the label
  std::vector<std::string> folders;  // paths; files share them, or a million paths cost 100 MB
  std::vector<ImageEntry> train;     // by class, then by name
  std::vector<ImageEntry> test;

  std::string path(const ImageEntry& entry) const {
    return folders[entry.folder] + "/" + entry.file;
  }
};

// Lists DIR/train/<class>/ with DIR/test/<class>/ or DIR/val/<class>/; without a test folder, or
// with DIR/<class>/ alone, every tenth image of a class (by name; one of a class of two to nine) is
// held out as a test image. Images end in .jpg, .jpeg or .png in any case; other files and hidden
// ones (.name) are skipped, symbolic links followed. Errors: no such folder, no class, a class
// without images, a test class that is no training class, an image that is no file, nothing to test
// with.
Expected<ImageListing> list_images(const std::string& folder);

}  // namespace grapevine
