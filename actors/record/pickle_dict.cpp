#include "actors/record/pickle_dict.hpp"

#include <torch/csrc/jit/serialization/pickle.h>

#include <memory>
#include <string>

namespace grapevine {
namespace {

using caffe2::serialize::PyTorchStreamWriter;

// What an archive needs for a record, at most: its headers, its name twice, and zeros that align it
// to 64 bytes; and for its own records and its end.
constexpr std::size_t kRecordRoom = 512;
constexpr std::size_t kArchiveRoom = 4096;

std::size_t room_for(const std::vector<char>& pickled, const std::vector<at::Tensor>& tensors) {
  std::size_t room = kArchiveRoom + kRecordRoom + pickled.size();
  for (const at::Tensor& tensor : tensors) room += kRecordRoom + tensor.storage().nbytes();
  return room;
}

void write_records(PyTorchStreamWriter& writer, const std::vector<char>& pickled,
                   const std::vector<at::Tensor>& tensors) {
  writer.writeRecord("data.pkl", pickled.data(), pickled.size());
  std::size_t number = 0;  // the pickle names the tensors' memory by it
  for (const at::Tensor& tensor : tensors) {
    const torch::jit::WriteableTensorData data = torch::jit::getWriteableTensorData(tensor);
    writer.writeRecord("data/" + std::to_string(number++), data.data(), data.sizeInBytes());
  }
  writer.writeEndOfFile();
}

}  // namespace

std::vector<char> pickle_dict(const at::IValue& dict) {
  std::vector<char> pickled;
  torch::jit::Pickler pickler(
      [&pickled](const char* bytes, std::size_t count) {
        pickled.insert(pickled.end(), bytes, bytes + count);
      },
      nullptr, nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();

  // Where memory is short, this throws, and no record does. A vector that grew would hold the state
  // up to three times, too.
  std::vector<char> archive;
  archive.reserve(room_for(pickled, pickler.tensorData()));
  auto writer =
      std::make_unique<PyTorchStreamWriter>([&archive](const void* data, std::size_t count) {
        const auto* bytes = static_cast<const char*>(data);
        archive.insert(archive.end(), bytes, bytes + count);
        return count;
      });
  try {
    write_records(*writer, pickled, pickler.tensorData());
  } catch (...) {
    // Its destructor would end the archive, fail once more, and with it the process.
    static_cast<void>(writer.release());
    throw;
  }
  return archive;
}

}  // namespace grapevine
