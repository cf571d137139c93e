#include "apps/zoo/models/shapes.hpp"

#include <ATen/ATen.h>

namespace grapevine {
namespace {

std::string shape_text(const DataInfo& info) {
  std::string text = "[";
  for (std::size_t i = 0; i < info.sample_shape.size(); ++i)
    text +=
        (i > 0 ? ", " : "") +
        (info.sample_shape[i] == kTimeSteps ? "time steps" : std::to_string(info.sample_shape[i]));
  return text + "]";
}

Error misfit(const std::string& model, const DataInfo& info, const std::string& needed) {
  return bad_input("model '" + model + "' does not fit data '" + info.name + "': its samples are " +
                   shape_text(info) + ", the model needs " + needed +
                   ": choose another model or data set");
}

}  // namespace

Expected<std::int64_t> sample_size(const std::string& model, const DataInfo& info) {
  std::int64_t size = 1;
  for (const std::int64_t side : info.sample_shape) {
    if (side < 1) return misfit(model, info, "a fixed shape");
    size *= side;
  }
  if (info.classes < 1)
    return bad_input("data '" + info.name + "' has no classes or outputs for model '" + model +
                     "' to predict: choose another data set");
  return size;
}

Expected<ImageShape> image_shape(const std::string& model, const DataInfo& info,
                                 std::int64_t smallest) {
  const Expected<std::int64_t> size = sample_size(model, info);
  if (!size) return size.error();
  const std::string side = std::to_string(smallest);
  const auto& shape = info.sample_shape;
  if (shape.size() != 3 || shape[1] < smallest || shape[2] < smallest)
    return misfit(model, info, "[channels, height >= " + side + ", width >= " + side + "]");
  return ImageShape{shape[0], shape[1], shape[2]};
}

Expected<SequenceShape> sequence_shape(const std::string& model, const DataInfo& info) {
  const auto& shape = info.sample_shape;
  const bool tokens = info.vocabulary > 0 && shape.size() == 1 && info.target_shape == shape;
  const bool features = info.vocabulary == 0 && shape.size() == 2 && shape[0] == kTimeSteps &&
                        shape[1] > 1 && info.target_shape.empty();
  if (info.task != Task::classification || info.classes < 1 || !(tokens || features))
    return misfit(model, info, "sequences, such as [time steps, features] or tokens");
  return SequenceShape{features ? shape[1] - 1 : 0, info.vocabulary, info.classes};
}

at::Tensor at_last_step(const at::Tensor& output, const at::Tensor& input) {
  const at::Tensor last = input.select(2, -1).sum(1).to(at::kLong) - 1;  // [B]
  return output.gather(1, last.view({-1, 1, 1}).expand({-1, 1, output.size(2)})).squeeze(1);
}

}  // namespace grapevine
