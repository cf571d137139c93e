// One function per built-in model, each in a file of its own name. They check the data's shape at
// once; the factories that they return cannot fail.
#pragma once
#include <string>

#include "gpu/data/data_set.hpp"
#include "gpu/model/model.hpp"
#include "messages/expected.hpp"

namespace grapevine {

Expected<ModelFactory> make_linear(const DataInfo& info);
Expected<ModelFactory> make_mlp(const DataInfo& info);
Expected<ModelFactory> make_lenet(const DataInfo& info);
Expected<ModelFactory> make_gem_cnn(const DataInfo& info);
Expected<ModelFactory> make_resnet20(const DataInfo& info);
Expected<ModelFactory> make_resnet32(const DataInfo& info);
Expected<ModelFactory> make_lstm(const DataInfo& info);
Expected<ModelFactory> make_transformer(const DataInfo& info);
Expected<ModelFactory> make_resnet18(const DataInfo& info);
Expected<ModelFactory> make_resnet50(const DataInfo& info);
Expected<ModelFactory> make_vgg16(const DataInfo& info);

// `notice`: as in make_model_factory(). Of tokens the module gets int64 [B, T], or floats where it
// fails with these, and it may return [B, classes, T] or, as usual in PyTorch, [B, T, classes].
Expected<ModelFactory> load_torchscript(const std::string& path, const DataInfo& info,
                                        std::string* notice);

}  // namespace grapevine
