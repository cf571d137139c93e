#include <array>
#include <string>
#include <string_view>

#include "apps/zoo/data/own/array_data.hpp"
#include "tests/apps/zoo/data/own/npy_writer.hpp"
#include "tests/fuzz/data_property.hpp"
#include "tests/fuzz/scratch_file.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kArrays = kArrayNames.size();
constexpr std::size_t kMostValueBytes = 512;  // of an array whose header is the input

// Arrays of a folder: two, or four with a test split.
class ArrayFolders {
 public:
  ArrayFolders() {
    for (std::size_t i = 0; i < kArrays; ++i) {
      const std::string name = kArrayNames[i] + std::string(".npy");
      if (i < 2) untested_.add(name, files[i]);
      tested_.add(name, files[i]);
    }
  }

  std::string path(bool tested) const { return (tested ? tested_ : untested_).path(); }

  std::array<fuzzing::ScratchFile, kArrays> files;

 private:
  const fuzzing::ScratchFolder untested_{"arrays"}, tested_{"arrays-tested"};
};

class TokenFolder {
 public:
  TokenFolder() {
    folder_.add("train.bin", train);
    folder_.add("val.bin", test);
  }

  std::string path() const { return folder_.path(); }

  fuzzing::ScratchFile train, test;

 private:
  const fuzzing::ScratchFolder folder_{"tokens"};
};

// Lines are the dicts in the headers of the arrays, and the bytes of the last one the values of
// each.
void check_headers(std::string_view input) {
  static ArrayFolders folders;
  std::array<std::string_view, kArrays> headers;
  std::size_t count = 0;
  while (count < kArrays && !input.empty()) headers[count++] = fuzzing::take_until("\n", input);
  std::string values(input);
  values.resize(kMostValueBytes, '\1');
  for (std::size_t i = 0; i < kArrays; ++i)
    folders.files[i].fill(testing_apps::npy_bytes(std::string(headers[i]), values));
  fuzzing::check_data_set(make_npy(folders.path(count > 2), {}));
}

// The file of the samples, with the labels of two.
void check_file(std::string_view bytes) {
  static ArrayFolders folders;
  folders.files[0].fill(bytes);
  folders.files[1].fill(
      testing_apps::npy_bytes("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", "\1\2"));
  fuzzing::check_data_set(make_npy(folders.path(false), {}));
}

// The first byte is the length of a sample, and the first half of the others is for training.
void check_tokens(std::string_view bytes, const std::string& settings) {
  static TokenFolder folder;
  if (bytes.empty()) return;
  const std::string length = std::to_string(static_cast<unsigned char>(bytes.front()));
  bytes.remove_prefix(1);
  folder.train.fill(bytes.substr(0, bytes.size() / 2));
  folder.test.fill(bytes.substr(bytes.size() / 2));
  fuzzing::check_data_set(make_tokens(folder.path() + settings + ",length=" + length, {}));
}

}  // namespace

void fuzz_one_own_data(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return;
  const std::string_view bytes = fuzzing::text_of(data, size).substr(1);
  switch (data[0] % 8) {
    case 0:
      return check_file(bytes);
    case 1:
      return check_tokens(bytes, "");
    case 2:
      return check_tokens(bytes, ",type=uint32");
    default:
      return check_headers(bytes);
  }
}

}  // namespace grapevine
