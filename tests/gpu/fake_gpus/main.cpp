// The program `grapevine` where two GPUs are visible: the fake devices of the tests, with groups in
// the place of NCCL's. At its end it prints the bytes that it copied, the graphs that it replayed,
// and what it did in the wrong order, which is a failure.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>

#include "apps/program.hpp"
#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/fake_device/fake_group.hpp"

namespace grapevine {
namespace {

constexpr int kViolations = 99;  // exit code

// GRAPEVINE_FAKE_GROUPS: `none`: as a build without NCCL; `dies`: replica 1 of a group over
// processes is killed while the others join.
void register_groups(GpuDriver& driver) {
  const char* const value = std::getenv("GRAPEVINE_FAKE_GROUPS");  // NOLINT(concurrency-mt-unsafe)
  const std::string wished = value == nullptr ? "" : value;
  if (wished == "none") return;
  driver.join_group = fake::group_join();
  driver.process_groups = fake::process_groups();
  if (wished != "dies") return;
  driver.process_groups.join = [join = driver.process_groups.join](
                                   const ProcessGroups::Id& id, int gpu, std::size_t replica,
                                   std::size_t replicas, Duration timeout,
                                   const ProcessGroups::Cancelled& cancelled) {
    if (replica == 1) std::raise(SIGKILL);
    return join(id, gpu, replica, replicas, timeout, cancelled);
  };
}

void register_fake_gpus() {
  GpuDriver driver;
  driver.visible = [] { return fake::kDevices; };
  driver.open = [](int gpu) -> Expected<std::shared_ptr<DeviceRuntime>> {
    return fake::open_device(gpu, "a user of GPU " + std::to_string(gpu));
  };
  // GRAPEVINE_FAKE_PCI: a folder with the CPUs near each GPU; without it, none are known.
  driver.pci_address = [](int gpu) -> Expected<std::string> {
    const char* const folder = std::getenv("GRAPEVINE_FAKE_PCI");  // NOLINT(concurrency-mt-unsafe)
    return folder == nullptr ? std::string("fake:00:00.0")
                             : std::string(folder) + "/gpu" + std::to_string(gpu);
  };
  driver.id = [](int gpu) -> Expected<std::string> { return "fake " + std::to_string(gpu); };
  register_groups(driver);
  register_cuda_driver(std::move(driver));
}

// GRAPEVINE_FAKE_DURATION: an operation of the devices and the seconds that it takes.
void set_duration() {
  const char* const value =
      std::getenv("GRAPEVINE_FAKE_DURATION");  // NOLINT(concurrency-mt-unsafe)
  if (value == nullptr) return;
  std::istringstream words(value);
  std::string operation;
  double seconds = 0;
  words >> operation >> seconds;
  fake::set_duration(operation, seconds);
}

void report_traffic() {
  const fake::Traffic traffic = fake::traffic();
  if (traffic.up == 0) return;
  std::fprintf(stderr,
               "traffic of the GPUs: %s bytes up, %s of them from pinned models; %s bytes down\n",
               std::to_string(traffic.up).c_str(), std::to_string(traffic.up_in_place).c_str(),
               std::to_string(traffic.down).c_str());
  const std::uint64_t replays = fake::calls("graph replay");
  if (replays > 0)
    std::fprintf(stderr, "graphs of the GPUs: %s replays\n", std::to_string(replays).c_str());
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
  grapevine::set_duration();
  const int code = grapevine::run_command_line(argc, argv);
  grapevine::report_traffic();
  const int violations = grapevine::report_violations();
  return violations != 0 ? violations : code;
}
