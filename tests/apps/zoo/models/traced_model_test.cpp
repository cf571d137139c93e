// TorchScript files whose layers cannot change between training and evaluation.
#include <gtest/gtest.h>

#include <torch/script.h>

#include "apps/zoo/models.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace traced_model_test {

DataInfo flat_info() {
  DataInfo info;
  info.name = "flat";
  info.sample_shape = {4};
  info.classes = 4;
  info.train_size = 64;
  info.test_size = 16;
  return info;
}

// What is said about a module with the parameter w and this method `forward`.
std::string notice_of(const std::string& forward) {
  const TemporaryDirectory folder;
  torch::jit::Module module("net");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("w", at::ones({4}).requires_grad_(), false);
  module.register_buffer("m", at::zeros({4}));
  module.register_buffer("v", at::ones({4}));
  module.define("def forward(self, x):\n  return " + forward + "\n");
  const std::string path = (folder.path() / "net.pt").string();
  module.save(path);
  std::string notice;
  const auto made = make_model_factory(path, flat_info(), &notice);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return notice;
}

std::string batch_norm(const std::string& training) {
  return "torch.batch_norm(x * self.w, self.w, self.w, self.m, self.v, " + training +
         ", 0.1, 1e-5, False)";
}

TEST(TracedModel, AFixedModeIsNoticed) {
  EXPECT_NE(notice_of(batch_norm("False")).find("fixed in evaluation mode"), std::string::npos);
  EXPECT_NE(notice_of(batch_norm("True")).find("fixed in training mode"), std::string::npos);
  EXPECT_NE(notice_of("torch.dropout(x * self.w, 0.5, False)").find("torch.jit.script(model)"),
            std::string::npos);
  EXPECT_NE(notice_of("torch.relu(x) if bool(x.sum() > 0) else torch.dropout(x, 0.5, False)")
                .find("fixed in evaluation mode"),
            std::string::npos)
      << "in a branch";
}

TEST(TracedModel, AModeThatTheModuleIsAskedForIsRight) {
  EXPECT_EQ(notice_of(batch_norm("self.training")), "");
  EXPECT_EQ(notice_of("torch.dropout(x * self.w, 0.5, self.training)"), "");
  EXPECT_EQ(notice_of("x * self.w"), "");
}

}  // namespace traced_model_test
}  // namespace grapevine
