// The zoo's models, by name or from a TorchScript file.
#pragma once
#include <string>
#include <vector>

#include "gpu/data/data_set.hpp"
#include "gpu/model.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// A built-in model for data of this shape (sample_shape) and number of classes or outputs, or the
// TorchScript module in a file: any name that ends in ".pt" or is an existing file. The file is
// read once, here, so that all workers train what it held at the start.
//
// Errors (bad_input): an unknown name; a shape that the model cannot take; a file that is missing
// or not TorchScript. Whether a TorchScript module fits the data is seen by TorchCompute::make.
//
// Built-in models are initialised from the seed alone: they leave LibTorch's global generator out.
// `notice`: receives a line for the user about a model that is taken but may not train as meant;
// else it stays as it is.
Expected<ModelFactory> make_model_factory(const std::string& name_or_file, const DataInfo& info,
                                          std::string* notice = nullptr);

// Names of the built-in models, roughly in the order of their size.
std::vector<std::string> model_names();

}  // namespace grapevine
