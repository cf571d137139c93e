// Which memory UCX reaches is found out at run time.
#include <gtest/gtest.h>

#include "net/ucx/ucx.hpp"

#ifdef GRAPEVINE_UCX
#include <uct/api/uct.h>

#include "net/ucx/ucx_worker.hpp"
#include "tests/net/ucx/ucx_testing.hpp"
#endif

namespace grapevine {
namespace ucx_memory_test {

#ifdef GRAPEVINE_UCX

constexpr std::uint64_t kHost = UCS_BIT(UCS_MEMORY_TYPE_HOST);
constexpr std::uint64_t kCuda = UCS_BIT(UCS_MEMORY_TYPE_CUDA);

TEST(UcxMemory, SaysWhetherUcxKnowsGpus) {
  EXPECT_EQ(ucx::say_memory(kHost).find("built without CUDA"), 0U);
  EXPECT_EQ(ucx::say_memory(0).find("built without CUDA"), 0U);
  EXPECT_EQ(ucx::say_memory(kHost | kCuda).find("built with CUDA"), 0U);
}

// What the library says of itself: host memory always; a GPU's only where one of its components is
// for CUDA.
TEST(UcxMemory, IsAskedOfTheLibrary) {
  const auto worker = ucx::Worker::make(loopback_options());
  ASSERT_TRUE(worker.ok()) << worker.error().message;
  const std::uint64_t types = (*worker)->memory_types();
  EXPECT_EQ(types & kHost, kHost);
  bool cuda_component = false;
  uct_component_h* components = nullptr;
  unsigned count = 0;
  ASSERT_EQ(uct_query_components(&components, &count), UCS_OK);
  for (unsigned i = 0; i < count; ++i) {
    uct_component_attr_t attributes{};
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
    ASSERT_EQ(uct_component_query(components[i], &attributes), UCS_OK);
    cuda_component = cuda_component || std::string(attributes.name).rfind("cuda", 0) == 0;
  }
  uct_release_component_list(components);
  EXPECT_EQ((types & kCuda) != 0, cuda_component);
}

#else

TEST(UcxMemory, NeedsUcx) { GTEST_SKIP() << "UCX is not in this build"; }

#endif

}  // namespace ucx_memory_test
}  // namespace grapevine
