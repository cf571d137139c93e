// One maker per built-in data set; registry.cpp lists them. `path` is what follows NAME: in the
// spec, empty where nothing does.
#pragma once
#include <memory>
#include <string>

#include "apps/zoo/data.hpp"

namespace grapevine {

using MadeDataSet = Expected<std::shared_ptr<const DataSet>>;

MadeDataSet make_glyphs(const std::string& path, const DataOptions& options);
MadeDataSet make_hyperplane(const std::string& path, const DataOptions& options);
MadeDataSet make_noise(const std::string& path, const DataOptions& options);
MadeDataSet make_sequences(const std::string& path, const DataOptions& options);
MadeDataSet make_text(const std::string& path, const DataOptions& options);
MadeDataSet make_mnist(const std::string& path, const DataOptions& options);
MadeDataSet make_cifar10(const std::string& path, const DataOptions& options);
MadeDataSet make_npy(const std::string& path, const DataOptions& options);
MadeDataSet make_tensors(const std::string& path, const DataOptions& options);
MadeDataSet make_tokens(const std::string& path, const DataOptions& options);
MadeDataSet make_images(const std::string& path, const DataOptions& options);

}  // namespace grapevine
