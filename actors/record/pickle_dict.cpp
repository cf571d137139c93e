#include "actors/record/pickle_dict.hpp"

#include <torch/csrc/jit/serialization/pickle.h>

#include <string>

namespace grapevine {

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

  std::vector<char> archive;
  caffe2::serialize::PyTorchStreamWriter writer([&archive](const void* data, std::size_t count) {
    const auto* bytes = static_cast<const char*>(data);
    archive.insert(archive.end(), bytes, bytes + count);
    return count;
  });
  writer.writeRecord("data.pkl", pickled.data(), pickled.size());
  std::size_t number = 0;  // the pickle names the tensors' memory by it
  for (const at::Tensor& tensor : pickler.tensorData()) {
    const torch::jit::WriteableTensorData data = torch::jit::getWriteableTensorData(tensor);
    writer.writeRecord("data/" + std::to_string(number++), data.data(), data.sizeInBytes());
  }
  writer.writeEndOfFile();
  return archive;
}

}  // namespace grapevine
