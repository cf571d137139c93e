#include "apps/train/model_file.hpp"

#include "actors/record/files.hpp"
#include "gpu/model/flat_params.hpp"

namespace grapevine {

Expected<void> save_model(const TrainJob& job, const RunResult& result) {
  auto model = job.model(static_cast<std::uint64_t>(job.options.seed));
  if (!model) return model.error();
  if (auto loaded = load_flat(**model, result.z, result.buffers); !loaded) return loaded;
  const std::string path = job.out + "/model.pt";
  auto file = AtomicFile::create(path);
  if (!file) return file.error();
  const std::string temporary = file->temporary_path().string();
  if (auto saved = (*model)->save(temporary); !saved) {
    // The user does not know the temporary name.
    Error error = saved.error();
    for (auto at = error.message.find(temporary); at != std::string::npos;
         at = error.message.find(temporary, at + path.size()))
      error.message.replace(at, temporary.size(), path);
    return error;
  }
  return file->commit();
}

}  // namespace grapevine
