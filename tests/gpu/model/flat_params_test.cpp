#include "gpu/model/flat_params.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "tests/gpu/tiny_model.hpp"

namespace grapevine {
namespace flat_params_test {

TEST(FlatTensors, ScatterIsTheInverseOfGather) {
  TinyModel model(tiny_layers());
  FlatTensors parameters = FlatTensors::of_parameters(model).value();
  ASSERT_EQ(parameters.numel(), 3 * 8 + 8 + 8 + 8 + 8 * 6 + 6);
  const at::Tensor values = at::rand({parameters.numel()});
  parameters.scatter(values);
  EXPECT_TRUE(parameters.gather().equal(values));
  // Row-major, in the model's order.
  EXPECT_TRUE(model.parameters()[0].tensor.flatten().equal(values.narrow(0, 0, 24)));
}

TEST(FlatTensors, GatherCopies) {
  TinyModel model(tiny_layers());
  FlatTensors parameters = FlatTensors::of_parameters(model).value();
  parameters.gather().fill_(7);
  EXPECT_FALSE(parameters.gather().eq(7).any().item<bool>());
}

TEST(FlatTensors, ConvertsIntegerBuffers) {
  TinyModel model(tiny_layers());
  FlatTensors buffers = FlatTensors::of_buffers(model).value();
  ASSERT_EQ(buffers.numel(), 8 + 8 + 1);
  at::Tensor values = at::rand({17});
  values[16] = 12345;
  buffers.scatter(values);
  EXPECT_EQ(model.buffers()[2].tensor.scalar_type(), at::kLong);
  EXPECT_EQ(model.buffers()[2].tensor.item<std::int64_t>(), 12345);
  EXPECT_TRUE(buffers.gather().equal(values));
}

// Of several types, in any order, with memory of any layout.
TEST(FlatTensors, TypesAreConvertedBothWays) {
  class Mixed : public torch::nn::Module {
   public:
    Mixed() {
      register_buffer("a", torch::rand({2, 3}));
      register_buffer("n", torch::zeros({}, torch::kLong));
      register_buffer("b", torch::rand({4, 2, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast));
      register_buffer("flags", torch::zeros({3}, torch::kBool));
      register_buffer("m", torch::zeros({2}, torch::kLong));
    }
    at::Tensor forward(const at::Tensor& x) { return x; }
  };
  TinyModel model(torch::nn::Sequential(std::make_shared<Mixed>()));
  FlatTensors buffers = FlatTensors::of_buffers(model).value();
  ASSERT_EQ(buffers.numel(), 6 + 1 + 72 + 3 + 2);
  at::Tensor values = at::rand({buffers.numel()});
  values[6] = 41;
  values.narrow(0, 79, 3).copy_(at::tensor({1.F, 0.F, 1.F}));
  values.narrow(0, 82, 2).copy_(at::tensor({7.F, 8.F}));
  buffers.scatter(values);
  EXPECT_TRUE(buffers.gather().equal(values));
  const auto named = model.buffers();
  EXPECT_EQ(named[1].tensor.item<std::int64_t>(), 41);
  EXPECT_TRUE(named[2].tensor.flatten().equal(values.narrow(0, 7, 72)));
  EXPECT_TRUE(named[3].tensor.equal(at::tensor({1, 0, 1}).to(at::kBool)));
  EXPECT_EQ(named[4].tensor.scalar_type(), at::kLong);
}

TEST(FlatTensors, PackFillsTheGapsWithZeros) {
  TinyModel model(torch::nn::Sequential(torch::nn::Linear(2, 2)));
  FlatTensors parameters = FlatTensors::of_parameters(model).value();
  at::Tensor flat = at::full({6}, 9.0F);
  parameters.pack({at::Tensor(), at::ones({2})}, flat);
  EXPECT_TRUE(flat.equal(at::tensor({0.F, 0.F, 0.F, 0.F, 1.F, 1.F})));
}

TEST(FlatTensors, RejectsWhatTheEngineCannotTrain) {
  torch::nn::Sequential doubles{torch::nn::Linear(2, 2)};
  doubles->to(torch::kDouble);
  TinyModel model(doubles);
  const auto parameters = FlatTensors::of_parameters(model);
  ASSERT_FALSE(parameters.ok());
  EXPECT_EQ(parameters.error().code, Errc::bad_input);
  EXPECT_EQ(parameters.error().message,
            "parameter '0.weight' is Double where Float is needed: call .float() on the model "
            "before saving it");
  TinyModel empty{torch::nn::Sequential(torch::nn::Tanh())};
  EXPECT_FALSE(FlatTensors::of_parameters(empty).ok());
}

// What a buffer becomes on its way through the flat tensor is what it was.
TEST(FlatTensors, RejectsBuffersThatFloatsDoNotHold) {
  const auto error_of = [](const at::Tensor& values) -> std::string {
    class Holder : public torch::nn::Module {
     public:
      explicit Holder(const at::Tensor& values) { register_buffer("kept", values); }
      at::Tensor forward(const at::Tensor& x) { return x; }
    };
    TinyModel model(
        torch::nn::Sequential(torch::nn::Linear(2, 2), std::make_shared<Holder>(values)));
    const auto buffers = FlatTensors::of_buffers(model);
    const auto loaded = load_flat(model, FrozenTensor::freeze(at::zeros({6})), {});
    EXPECT_EQ(buffers.ok(), loaded.ok());
    if (buffers.ok()) return "";
    EXPECT_EQ(buffers.error().code, Errc::bad_input);
    EXPECT_EQ(loaded.error().message, buffers.error().message);
    return buffers.error().message;
  };
  EXPECT_EQ(error_of(at::zeros({2}, at::kComplexFloat)),
            "buffer '1.kept' is ComplexFloat where real numbers are needed: keep "
            "torch.view_as_real of it");
  EXPECT_EQ(error_of(at::full({2}, 1.0 / 3, at::kDouble)),
            "buffer '1.kept' is Double, with values that float32 does not hold: call .float() on "
            "the model before saving it");
  for (const std::int64_t value :
       {std::int64_t{1234567891}, std::int64_t{987654321012345}, -16777217L})
    EXPECT_EQ(error_of(at::full({1}, value, at::kLong)),
              "buffer '1.kept' is Long, with values that float32 does not hold: keep whole "
              "numbers of at most 16777216 in it");
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_of(at::tensor({0.5, -inf, inf, nan}, at::kDouble)), "");
  EXPECT_EQ(error_of(at::full({2}, 1.0 / 3, at::kHalf)), "");
  EXPECT_EQ(error_of(at::full({2}, 1 << 24, at::kLong)), "");
  EXPECT_EQ(error_of(at::ones({2}, at::kBool)), "");
  EXPECT_EQ(error_of(at::empty({0}, at::kLong)), "");
}

TEST(BoundParameters, AreViewsOfZ) {
  TinyModel model(tiny_layers());
  FlatTensors parameters = FlatTensors::of_parameters(model).value();
  const FrozenTensor z = FrozenTensor::freeze(at::rand({parameters.numel()}));
  const BoundParameters bound(parameters, z);
  std::int64_t offset = 0;
  for (const NamedTensor& each : model.parameters()) {
    EXPECT_EQ(each.tensor.data_ptr<float>(), z.data<float>() + offset) << each.name;
    EXPECT_TRUE(each.tensor.requires_grad());
    EXPECT_TRUE(each.tensor.is_leaf());
    offset += each.tensor.numel();
  }
  EXPECT_FALSE(z.sole_owner());
}

TEST(BoundParameters, LeaveZToItsOwnerAfterAStep) {
  TinyModel model(tiny_layers());
  FlatTensors parameters = FlatTensors::of_parameters(model).value();
  FrozenTensor z = FrozenTensor::freeze(at::rand({parameters.numel()}));
  const at::Tensor before = z.read().clone();
  for (int step = 0; step < 3; ++step) {
    {
      const BoundParameters bound(parameters, z);
      const at::Tensor loss = model.forward(at::rand({4, 3})).pow(2).sum();
      const auto gradients = torch::autograd::grad({loss}, parameters.tensors());
      EXPECT_EQ(gradients.size(), parameters.tensors().size());
    }
    EXPECT_TRUE(z.sole_owner());
  }
  EXPECT_TRUE(z.read().equal(before));
  const void* memory = z.raw();
  EXPECT_EQ(std::move(z).thaw().data_ptr(), memory);
}

TEST(BoundParameters, LeaveZToItsOwnerAfterAnException) {
  TinyModel model(tiny_layers());
  FlatTensors parameters = FlatTensors::of_parameters(model).value();
  const FrozenTensor z = FrozenTensor::freeze(at::rand({parameters.numel()}));
  try {
    const BoundParameters bound(parameters, z);
    model.forward(at::rand({4, 5}));
    FAIL() << "five values fit a layer of three inputs";
  } catch (const std::exception&) {
    EXPECT_TRUE(z.sole_owner());
  }
}

TEST(FlatTensors, AlignedIsSaidOfEveryTensorsBegin) {
  TinyModel lines{torch::nn::Sequential(torch::nn::Linear(4, 8),
                                        torch::nn::Linear(torch::nn::LinearOptions(8, 6)))};
  const FlatTensors parameters = FlatTensors::of_parameters(lines).value();
  // Begins: 0, 128, 160 and 352 bytes. The end does not count.
  EXPECT_TRUE(parameters.aligned(4));
  EXPECT_TRUE(parameters.aligned(32));
  EXPECT_FALSE(parameters.aligned(64));
  TinyModel one{
      torch::nn::Sequential(torch::nn::Linear(torch::nn::LinearOptions(3, 1).bias(false)))};
  EXPECT_TRUE(FlatTensors::of_parameters(one).value().aligned(128));
}

// Memory of their own, in the layout that was asked for, is filled from each z and holds none.
TEST(FlatTensors, ThatAreKeptTakeZsValuesAndLetItGo) {
  torch::nn::Sequential layers(torch::nn::Conv2d(3, 5, 3), torch::nn::Flatten(),
                               torch::nn::Linear(5, 2));
  TinyModel model(layers);
  FlatTensors parameters = FlatTensors::of_parameters(model).value();
  const at::Tensor before = parameters.gather();
  parameters.keep(at::kCPU, at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(parameters.gather().equal(before));
  std::vector<const void*> memory;
  for (const NamedTensor& each : model.parameters()) memory.push_back(each.tensor.data_ptr());
  const at::Tensor input = at::rand({4, 3, 3, 3});
  for (int step = 0; step < 3; ++step) {
    const FrozenTensor z = FrozenTensor::freeze(at::rand({parameters.numel()}));
    at::Tensor gradient = at::empty({parameters.numel()});
    {
      const BoundParameters bound(parameters, z);
      EXPECT_TRUE(z.sole_owner());
      parameters.pack(
          torch::autograd::grad({model.forward(input).pow(2).sum()}, parameters.tensors()),
          gradient);
    }
    const std::vector<NamedTensor> all = model.parameters();
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].tensor.data_ptr(), memory[i]) << all[i].name;
      EXPECT_TRUE(all[i].tensor.requires_grad() && all[i].tensor.is_leaf()) << all[i].name;
    }
    EXPECT_TRUE(all[0].tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(all[0].tensor.contiguous().view({-1}).equal(z.read().narrow(0, 0, 135)));
    EXPECT_TRUE(parameters.gather().equal(z.read()));
    // The same of a model whose parameters are views of z.
    TinyModel other(torch::nn::Sequential(torch::nn::Conv2d(3, 5, 3), torch::nn::Flatten(),
                                          torch::nn::Linear(5, 2)));
    FlatTensors views = FlatTensors::of_parameters(other).value();
    at::Tensor expected = at::empty_like(gradient);
    const BoundParameters bound(views, z);
    views.pack(torch::autograd::grad({other.forward(input).pow(2).sum()}, views.tensors()),
               expected);
    EXPECT_TRUE(at::allclose(gradient, expected, 1e-5, 1e-6));
  }
}

TEST(LoadFlat, FillsAModelThatWasUnbound) {
  TinyModel model(tiny_layers());
  FlatTensors parameters = FlatTensors::of_parameters(model).value();
  const FrozenTensor z = FrozenTensor::freeze(at::rand({parameters.numel()}));
  const FrozenTensor buffers = FrozenTensor::freeze(at::ones({17}));
  ASSERT_TRUE(load_flat(model, z, buffers).ok());
  EXPECT_TRUE(parameters.gather().equal(z.read()));
  EXPECT_TRUE(FlatTensors::of_buffers(model).value().gather().equal(buffers.read()));
  parameters.unbind();
  parameters.scatter(z.read());
  EXPECT_EQ(model.parameters()[0].tensor.sizes(), (std::vector<std::int64_t>{8, 3}));
  EXPECT_TRUE(parameters.gather().equal(z.read()));
  EXPECT_TRUE(z.sole_owner());
}

TEST(LoadFlat, NamesBothSizes) {
  TinyModel model(tiny_layers());
  const auto wrong_z = load_flat(model, FrozenTensor::freeze(at::rand({5})), {});
  ASSERT_FALSE(wrong_z.ok());
  EXPECT_EQ(
      wrong_z.error().message,
      "the flat tensor has 5 values, the model 102 parameters: use the model that was trained");
  const auto wrong_buffers =
      load_flat(model, FrozenTensor::freeze(at::rand({102})), FrozenTensor::freeze(at::rand({5})));
  ASSERT_FALSE(wrong_buffers.ok());
  EXPECT_EQ(wrong_buffers.error().code, Errc::bad_input);
}

}  // namespace flat_params_test
}  // namespace grapevine
