// The program grapevine with a model and a data set of its own: two spirals in a plane, told apart
// by a small network.
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "apps/program.hpp"
#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "apps/zoo/models/module_model.hpp"
#include "messages/random.hpp"

namespace gv = grapevine;

// A point of spiral c at angle t + c pi and radius t, with noise. Each is a function of the split
// and the index alone, so that all ranks and all runs see the same data.
class Spirals final : public gv::DataSet {
 public:
  Spirals() {
    info_.name = "spirals";
    info_.sample_shape = {2};
    info_.classes = 2;
    info_.train_size = 4096;
    info_.test_size = 1024;
  }

  const gv::DataInfo& info() const override { return info_; }

  gv::Expected<gv::Batch> batch(gv::Split split, const std::vector<std::int64_t>& indices,
                                std::uint64_t) const override {
    const auto size = static_cast<std::int64_t>(indices.size());
    gv::Batch batch{at::empty({size, 2}), at::empty({size}, at::kLong)};
    auto* point = batch.input.data_ptr<float>();
    auto* label = batch.target.data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      gv::Rng rng(
          gv::mix_seed(split == gv::Split::train ? 1 : 2, static_cast<std::uint64_t>(index)));
      const double t = std::uniform_real_distribution<double>(0.5, 6)(rng);
      std::normal_distribution<double> noise(0, 0.1);
      const double angle = t + M_PI * static_cast<double>(*label = index % 2);
      *point++ = static_cast<float>(t * std::cos(angle) + noise(rng));
      *point++ = static_cast<float>(t * std::sin(angle) + noise(rng));
      ++label;
    }
    return batch;
  }

 private:
  gv::DataInfo info_;  // constant after construction
};

class SpiralNet : public torch::nn::Module {
 public:
  SpiralNet(std::int64_t inputs, std::int64_t outputs)
      : first_(register_module("first", torch::nn::Linear(inputs, 64))),
        second_(register_module("second", torch::nn::Linear(64, 64))),
        last_(register_module("last", torch::nn::Linear(64, outputs))) {}

  at::Tensor forward(const at::Tensor& x) {
    return last_(torch::relu(second_(torch::relu(first_(x)))));
  }

 private:
  torch::nn::Linear first_, second_, last_;
};

gv::Expected<gv::ModelFactory> make_spiral_net(const gv::DataInfo& info) {
  if (info.sample_shape.size() != 1)
    return gv::bad_input("model 'spiral-net' takes vectors: --data " + info.name + " has none");
  return gv::module_factory([inputs = info.sample_shape[0], outputs = info.classes] {
    return std::make_shared<SpiralNet>(inputs, outputs);
  });
}

gv::Expected<std::shared_ptr<const gv::DataSet>> make_spirals(const std::string& path,
                                                              const gv::DataOptions&) {
  if (!path.empty()) return gv::bad_input("data set 'spirals' takes no PATH, not '" + path + "'");
  return std::shared_ptr<const gv::DataSet>(std::make_shared<Spirals>());
}

int main(int argc, char** argv) {
  return gv::run_command_line(argc, argv,
                              {gv::register_data_set("spirals", make_spirals),
                               gv::register_model("spiral-net", make_spiral_net)});
}
