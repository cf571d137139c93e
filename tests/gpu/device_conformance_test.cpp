// The CPU, the device that puts everything off, in order and at random, and the device whose order
// is checked.
#include "tests/gpu/device_conformance.hpp"

#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/lazy_device.hpp"

namespace grapevine {
namespace device_conformance_test {

DeviceUnderTest lazy(std::uint64_t seed) {
  return {"Lazy" + std::to_string(seed), [seed] { return std::make_shared<LazyDevice>(seed); }, ""};
}

DeviceUnderTest fake_device() {
  return {"Fake", [] { return fake::open_device(0, "conformance"); }, ""};
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceConformance,
                         testing::Values(DeviceUnderTest{"Host", host_runtime, ""}, lazy(0),
                                         lazy(1), lazy(2), lazy(3), fake_device()),
                         name_of);

}  // namespace device_conformance_test
}  // namespace grapevine
