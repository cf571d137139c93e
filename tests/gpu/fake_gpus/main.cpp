// The program `grapevine` where two GPUs are visible: the fake devices of the tests. At
// its end it prints the bytes that it copied, and what it did in the wrong order, which is a failure.
#include <cstdio>
#include <memory>
#include <string>

#include "apps/program.hpp"
#include "tests/gpu/fake_device/fake_device.hpp"

namespace grapevine {
namespace {

constexpr int kViolations = 99;  // exit code

void register_fake_gpus() {
  GpuDriver driver;
  driver.visible = [] { return fake::kDevices; };
  driver.open = [](int gpu) -> Expected<std::shared_ptr<DeviceRuntime>> {
    return fake::open_device(gpu, "a user of GPU " + std::to_string(gpu));
  };
  driver.pci_address = [](int) -> Expected<std::string> { return std::string("fake:00:00.0"); };
  driver.id = [](int gpu) -> Expected<std::string> { return "fake " + std::to_string(gpu); };
  register_cuda_driver(std::move(driver));
}

void report_traffic() {
  const fake::Traffic traffic = fake::traffic();
  std::fprintf(stderr, "traffic of the GPUs: %s bytes up, %s of them from pinned models\n",
               std::to_string(traffic.up).c_str(), std::to_string(traffic.up_in_place).c_str());
}

int report_violations() {
  const auto violations = fake::violations();
  for (const std::string& violation : violations)
    std::fprintf(stderr, "violation: %s\n", violation.c_str());
  return violations.empty() ? 0 : kViolations;
}

}  // namespace
}  // namespace grapevine

int main(int argc, char** argv) {
  grapevine::register_fake_gpus();
  const int code = grapevine::run_command_line(argc, argv);
  grapevine::report_traffic();
  const int violations = grapevine::report_violations();
  return violations != 0 ? violations : code;
}
