// The model that `evaluate` is to judge, from a file or a run.
#pragma once
#include <memory>
#include <string>

#include "gpu/data/data_set.hpp"
#include "gpu/model.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// A file with weights, and what is known of the run that wrote it.
struct ModelSource {
  std::string file;   // TorchScript, or a dict of tensors
  std::string model;  // built-in model of a dict; empty: not known
  std::string data;   // of the run; empty: not known
  std::string loss;   // of the run; empty: not known
};

// `given`: a model file, or the folder of a run. Errors (bad_input): neither, a run without
// model.pt.
Expected<ModelSource> find_model(const std::string& given);

// Errors (bad_input): the file is no model or does not fit the data; a dict of tensors without the
// name of its model.
Expected<std::unique_ptr<Model>> load_model(const ModelSource& source, const DataInfo& info);

}  // namespace grapevine
