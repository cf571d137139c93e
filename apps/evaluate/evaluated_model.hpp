// The model that `evaluate` is to judge, from a file or a run.
#pragma once
#include <memory>
#include <string>

#include "gpu/data/data_set.hpp"
#include "gpu/model/model.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// A file with weights, and what is known of the run that wrote it.
struct ModelSource {
  std::string file;           // TorchScript, or a dict of tensors
  std::string model;          // built-in model of a dict; empty: not known
  std::string data;           // of the run; empty: not known
  std::string loss;           // of the run; empty: not known
  std::string seed;           // of the run; empty: not known
  bool skip_damaged = false;  // whether the run left out samples that cannot be read
};

// Whether the folder is one checkpoint, not a run.
bool is_checkpoint(const std::string& folder);

// The models of `factory`, with the mean of the ranks' models in a checkpoint. Errors (bad_input):
// it is damaged, of another model, or of parameter servers, whose model is not that of the ranks.
Expected<ModelFactory> with_checkpoint(ModelFactory factory, const std::string& folder);

// `given`: a model file, the folder of a run or of a checkpoint. Errors (bad_input): none of these,
// a run without model.pt.
Expected<ModelSource> find_model(const std::string& given);

// Errors (bad_input): the file is no model or does not fit the data; a dict of tensors without the
// name of its model.
Expected<std::unique_ptr<Model>> load_model(const ModelSource& source, const DataInfo& info);

}  // namespace grapevine
