// The zoo's models, by name or from a TorchScript file.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "gpu/data/data_set.hpp"
#include "gpu/model/model.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// A model for data of this shape (sample_shape) and number of classes or outputs, checked at once.
// Errors (bad_input): a shape that the model cannot take.
using ModelMaker = std::function<Expected<ModelFactory>(const DataInfo& info)>;

// Adds a model from outside; module_factory() (apps/zoo/models/module_model.hpp) makes the factory
// of a torch::nn module. Not thread-safe. Errors (bad_input): a name that is taken.
Expected<void> register_model(const std::string& name, ModelMaker make);

// A named model for data of this shape (sample_shape) and number of classes or outputs, or the
// TorchScript module in a file: any name that ends in ".pt" or is an existing file. The file is
// read once, here, so that all workers train what it held at the start.
//
// Errors (bad_input): an unknown name; a shape that the model cannot take; a file that is missing
// or not TorchScript. Whether a TorchScript module fits the data is seen by TorchCompute::make.
//
// The zoo's models are initialised from the seed alone: they leave LibTorch's global generator out.
// `notice`: receives a line for the user about a model that is taken but may not train as meant;
// else it stays as it is.
Expected<ModelFactory> make_model_factory(const std::string& name_or_file, const DataInfo& info,
                                          std::string* notice = nullptr);

// Whether it may be a model for make_model_factory() on another machine: a name, or a file, which
// need not be here if its name ends in ".pt" or states a folder. Errors (bad_input): an unknown
// name.
Expected<void> check_model_name(const std::string& name_or_file);

// Names of the zoo's models, roughly in the order of their size, then of those from outside.
std::vector<std::string> model_names();

}  // namespace grapevine
