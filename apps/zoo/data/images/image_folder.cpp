#include "apps/zoo/data/images/image_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "messages/text/lower_case.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHoldOut = 10;  // one of so many

bool is_image_name(const std::string& name) {
  const std::string ending = lower_case(fs::path(name).extension().string());
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

bool is_folder(const fs::path& path) {
  std::error_code failure;
  return fs::is_directory(path, failure);
}

// Names in `folder` without the hidden ones, sorted by bytes.
Expected<std::vector<std::string>> visible_names(const fs::path& folder) {
  std::error_code failure;
  std::vector<std::string> names;
  fs::directory_iterator entry(folder, failure);
  for (; !failure && entry != fs::directory_iterator(); entry.increment(failure)) {
    std::string name = entry->path().filename().string();
    if (name.front() != '.') names.push_back(std::move(name));
  }
  if (failure)
    return bad_input("images: cannot list '" + folder.string() + "': " + failure.message());
  std::sort(names.begin(), names.end());
  return names;
}

Expected<std::vector<std::string>> class_names(const fs::path& folder) {
  auto names = visible_names(folder);
  if (!names) return names.error();
  std::vector<std::string> classes;
  std::copy_if(names->begin(), names->end(), std::back_inserter(classes),
               [&](const std::string& name) { return is_folder(folder / name); });
  if (classes.empty())
    return bad_input("images: no class folder in '" + folder.string() +
                     "': give one folder of JPEG or PNG files per class");
  return classes;
}

Expected<std::vector<std::string>> image_names(const fs::path& folder) {
  auto names = visible_names(folder);
  if (!names) return names.error();
  const bool holds_folders =
      std::any_of(names->begin(), names->end(),
                  [&](const std::string& name) { return is_folder(folder / name); });
  std::vector<std::string> images;
  for (std::string& name : *names) {
    if (!is_image_name(name)) continue;
    std::error_code failure;
    if (!fs::is_regular_file(folder / name, failure))
      return bad_input((folder / name).string() +
                       ": not a file (a broken link or a folder): remove or mend it");
    images.push_back(std::move(name));
  }
  if (images.empty() && holds_folders)
    return bad_input("images: the class folder '" + folder.string() +
                     "' holds folders in the place of images: give DIR/CLASS/IMAGE, or "
                     "DIR/train/CLASS/IMAGE and DIR/test/CLASS/IMAGE (train, test and val in small "
                     "letters)");
  if (images.empty())
    return bad_input("images: no .jpg, .jpeg or .png file in the class folder '" + folder.string() +
                     "': remove the folder or fill it");
  return images;
}

// Appends the images of one class folder to `split`.
Expected<void> add_class(const fs::path& folder, std::size_t label, ImageListing& listing,
                         std::vector<ImageEntry>& split) {
  auto names = image_names(folder);
  if (!names) return names.error();
  const auto index = static_cast<std::int32_t>(listing.folders.size());
  listing.folders.push_back(folder.string());
  for (std::string& name : *names)
    split.push_back({index, static_cast<std::int32_t>(label), std::move(name)});
  return {};
}

Expected<void> add_test_split(const fs::path& folder, ImageListing& listing) {
  auto names = class_names(folder);
  if (!names) return names.error();
  for (const std::string& name : *names) {
    const auto known = std::lower_bound(listing.classes.begin(), listing.classes.end(), name);
    if (known == listing.classes.end() || *known != name)
      return bad_input("images: class folder '" + (folder / name).string() +
                       "' has no training folder of that name");
    const auto label = static_cast<std::size_t>(known - listing.classes.begin());
    if (auto done = add_class(folder / name, label, listing, listing.test); !done)
      return done.error();
  }
  return {};
}

// Moves every tenth image of each class from the training images to the test images.
void hold_out(ImageListing& listing) {
  std::vector<ImageEntry> all = std::move(listing.train);
  listing.train.clear();
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && all[end].label == all[begin].label) ++end;
    const std::size_t period = std::min(kHoldOut, end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      const bool held = period > 1 && (i - begin) % period == period - 1;
      (held ? listing.test : listing.train).push_back(std::move(all[i]));
    }
  }
}

}  // namespace

Expected<ImageListing> list_images(const std::string& folder) {
  const fs::path root(folder);
  if (!is_folder(root))
    return bad_input("images: no folder '" + folder +
                     "': give images:DIR with one folder of JPEG or PNG files per class");
  const fs::path train = is_folder(root / "train") ? root / "train" : root;
  auto classes = class_names(train);
  if (!classes) return classes.error();
  ImageListing listing;
  listing.classes = std::move(*classes);
  for (std::size_t label = 0; label < listing.classes.size(); ++label) {
    auto done = add_class(train / listing.classes[label], label, listing, listing.train);
    if (!done) return done.error();
  }
  for (const char* name : {"test", "val"}) {
    if (train == root || !is_folder(root / name)) continue;
    if (auto done = add_test_split(root / name, listing); !done) return done.error();
    return listing;
  }
  hold_out(listing);
  if (listing.test.empty())
    return bad_input("images: every class in '" + train.string() +
                     "' has one image, none can be held out: add images or a test folder");
  return listing;
}

}  // namespace grapevine
