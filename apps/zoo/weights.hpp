// Trained weights from files: of runs, of torch.save, of TorchScript.
#pragma once
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "gpu/model/model.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Parameters and buffers by name.
using Weights = std::map<std::string, at::Tensor>;

// The file is a dict of tensors that torch.save or a run has written, a dict with one of these
// under "state_dict", "model_state_dict" or "model", or a TorchScript module. "module." before all
// names, as DistributedDataParallel puts it there, is taken away. Errors (bad_input): missing, none
// of these, damaged (by the checksums in the file).
Expected<Weights> read_weights(const std::string& path);

// Whether the file holds a TorchScript module, and not just tensors.
bool is_torchscript(const std::string& path);

// Copies the weights into the model. A batch-norm's num_batches_tracked may be missing. Errors
// (bad_input) name the file and the tensor: missing, of another shape, or of no use to the model.
Expected<void> set_weights(Model& model, const Weights& weights, const std::string& path);

// Makes the models of `factory`, with these weights. Errors of the weights are found at once.
Expected<ModelFactory> with_weights(ModelFactory factory, Weights weights, const std::string& path);

}  // namespace grapevine
