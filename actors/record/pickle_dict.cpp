#include "actors/record/pickle_dict.hpp"

#include <ATen/ops/empty.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "messages/check.hpp"

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

struct Pickled {
  std::vector<char> text;           // of the archive's first record
  std::vector<at::Tensor> tensors;  // of the others
};

Pickled pickle(const at::IValue& dict) {
  Pickled pickled;
  torch::jit::Pickler pickler(
      [&pickled](const char* bytes, std::size_t count) {
        pickled.text.insert(pickled.text.end(), bytes, bytes + count);
      },
      nullptr, nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();
  pickled.tensors = pickler.tensorData();
  return pickled;
}

// `write(bytes, count)` has room for all of them: where memory is short, its caller has thrown, and
// no record does.
template <class Write>
void write_archive(const Pickled& pickled, const Write& write) {
  auto writer = std::make_unique<PyTorchStreamWriter>([&](const void* data, std::size_t count) {
    write(static_cast<const char*>(data), count);
    return count;
  });
  try {
    write_records(*writer, pickled.text, pickled.tensors);
  } catch (...) {
    // Its destructor would end the archive, fail once more, and with it the process.
    static_cast<void>(writer.release());
    throw;
  }
}

// Tensors of bytes, which are filled in turn.
class Chunks {
 public:
  Chunks(std::size_t room, std::int64_t chunk_bytes)
      : chunk_bytes_(static_cast<std::size_t>(chunk_bytes)) {
    for (std::size_t bytes = 0; bytes < room; bytes += chunk_bytes_)
      tensors_.push_back(at::empty({chunk_bytes}, at::kByte));
  }

  void write(const char* bytes, std::size_t count) {
    while (count > 0) {
      const std::size_t chunk = filled_ / chunk_bytes_, offset = filled_ % chunk_bytes_;
      GRAPEVINE_CHECK(chunk < tensors_.size(), "an archive is larger than its room");
      const std::size_t part = std::min(count, chunk_bytes_ - offset);
      std::copy_n(bytes, part, tensors_[chunk].data_ptr<std::uint8_t>() + offset);
      bytes += part, count -= part, filled_ += part;
    }
  }

  std::vector<FrozenTensor> freeze() && {
    const std::size_t whole = filled_ / chunk_bytes_, rest = filled_ % chunk_bytes_;
    std::vector<FrozenTensor> frozen;
    for (std::size_t i = 0; i < whole; ++i)
      frozen.push_back(FrozenTensor::freeze(std::move(tensors_[i])));
    if (rest > 0)
      frozen.push_back(
          FrozenTensor::copy_of(tensors_[whole].narrow(0, 0, static_cast<std::int64_t>(rest))));
    return frozen;
  }

 private:
  const std::size_t chunk_bytes_;
  std::vector<at::Tensor> tensors_;
  std::size_t filled_ = 0;  // bytes
};

}  // namespace

std::vector<char> pickle_dict(const at::IValue& dict) {
  const Pickled pickled = pickle(dict);
  // A vector that grew would hold the state up to three times.
  std::vector<char> archive;
  archive.reserve(room_for(pickled.text, pickled.tensors));
  write_archive(pickled, [&archive](const char* bytes, std::size_t count) {
    archive.insert(archive.end(), bytes, bytes + count);
  });
  return archive;
}

std::vector<FrozenTensor> pickle_dict_in_chunks(const at::IValue& dict, std::int64_t chunk_bytes) {
  const Pickled pickled = pickle(dict);
  Chunks chunks(room_for(pickled.text, pickled.tensors), chunk_bytes);
  write_archive(pickled,
                [&chunks](const char* bytes, std::size_t count) { chunks.write(bytes, count); });
  return std::move(chunks).freeze();
}

}  // namespace grapevine
