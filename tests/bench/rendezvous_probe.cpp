// How long processes take to meet, without their start: they are forked once LibTorch is loaded,
// and wait until all have an actor system and a transport. One JSON line per transport and number:
//   {"kind":"rendezvous","transport":"tcp","processes":64,"seconds":…,"first_s":…,"cpu_s":…}
// seconds: from then until the last process has its link with every other one; first_s: until the
// first one has; cpu_s: processor time of all of them from then on. Usage: rendezvous_probe
// [NUMBER…]
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <caf/all.hpp>

#include "actors/cluster/process_agent.hpp"
#include "actors/cluster/rendezvous.hpp"
#include "actors/run/supervisor.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "net/addresses.hpp"
#include "net/shm/shm.hpp"
#include "net/tcp/tcp.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration kTimeout = std::chrono::seconds(60);

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "rendezvous_probe: %s\n", what.c_str());
  std::_Exit(1);
}

// Numbers from any process to any other; a wait for each of them.
class Gate {
 public:
  Gate() {
    if (::pipe(ends_.data()) != 0) fail("no pipe");
  }
  ~Gate() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void put(double number = 0) const {
    if (::write(ends_[1], &number, sizeof number) != sizeof number) fail("a pipe is closed");
  }
  double take() const {
    double number = 0;
    if (::read(ends_[0], &number, sizeof number) != sizeof number) fail("a process has ended");
    return number;
  }

 private:
  std::array<int, 2> ends_{};
};

struct Gates {
  Gate prepared, begin, connected, end;
};

std::shared_ptr<RemoteTransport> make_transport(const std::string& name) {
  TcpOptions tcp;
  tcp.host = "127.0.0.1";
  auto made = name == "shm" ? make_shm_transport({}) : make_tcp_transport(tcp);
  if (!made) fail(made.error().message);
  return *std::move(made);
}

RunConfig make_config(const std::string& transport, std::int32_t process, std::int32_t processes,
                      std::uint16_t port) {
  RunConfig config;
  config.ranks = processes;
  config.parts = *make_parts(*resolve(Wiring()), {1, 1}, *LrSchedule::make({}), {}, processes);
  config.timeout = kTimeout;
  ClusterConfig& cluster = config.cluster.emplace();
  cluster.process = process;
  cluster.processes = processes;
  cluster.head_host = cluster.listen_host = "127.0.0.1";
  cluster.head_port = port;
  cluster.own_host = shm_host_key();
  cluster.secret = "secret of the probe";
  cluster.timeout = kTimeout;
  cluster.transport_name = transport;
  cluster.transport = make_transport(transport);
  return config;
}

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void meet(const RunConfig& config, caf::actor_system& system, const Gates& gates) {
  const ClusterConfig& cluster = *config.cluster;
  SupervisorActor supervisor;
  ProcessAgentActor agent;
  if (cluster.process == 0)
    supervisor = system.spawn(grapevine::supervisor, SupervisorConfig());
  else
    agent = system.spawn(
        grapevine::process_agent,
        ProcessAgentConfig{cluster.process, cluster.processes, head_of(cluster), nullptr, nullptr});
  gates.prepared.put();
  gates.begin.take();
  const double before = processor_seconds();
  KnownLosses losses([](std::int32_t) {});
  const auto joined = join_run(system, config, supervisor, agent, {}, losses);
  if (!joined) fail(joined.error().message);
  gates.connected.put(processor_seconds() - before);
  gates.end.take();
}

[[noreturn]] void run_process(const std::string& transport, std::int32_t process,
                              std::int32_t processes, std::uint16_t port, const Gates& gates) {
  spdlog::set_level(spdlog::level::err);  // the end of others breaks links
  const RunConfig config = make_config(transport, process, processes, port);
  caf::actor_system_config system_config;
  configure_for_cluster(system_config, kTimeout);
  caf::actor_system system(system_config);
  meet(config, system, gates);
  std::_Exit(0);  // the others have met as well: nothing is to be flushed
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void measure(const std::string& transport, std::int32_t processes) {
  const auto port = reserve_tcp_port();
  if (!port) fail(port.error().message);
  const Gates gates;
  std::vector<pid_t> children;
  for (std::int32_t process = 0; process < processes; ++process) {
    const pid_t child = ::fork();  // this process has no other thread
    if (child < 0) fail("no further process");
    if (child == 0) run_process(transport, process, processes, port->number, gates);
    children.push_back(child);
  }
  for (std::int32_t i = 0; i < processes; ++i) gates.prepared.take();
  const Clock::time_point begin = Clock::now();
  for (std::int32_t i = 0; i < processes; ++i) gates.begin.put();
  double processor = gates.connected.take();
  const double first = seconds_since(begin);
  for (std::int32_t i = 1; i < processes; ++i) processor += gates.connected.take();
  const double last = seconds_since(begin);
  for (std::int32_t i = 0; i < processes; ++i) gates.end.put();
  bool well = true;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    well = well && status == 0;
  }
  if (!well) fail("a process did not meet the others");
  std::printf(
      "{\"kind\":\"rendezvous\",\"transport\":\"%s\",\"processes\":%d,\"seconds\":%.4g,"
      "\"first_s\":%.4g,\"cpu_s\":%.4g}\n",
      transport.c_str(), processes, last, first, processor);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  std::vector<std::int32_t> numbers;
  for (int i = 1; i < argc; ++i) numbers.push_back(std::atoi(argv[i]));
  if (numbers.empty()) numbers = {2, 8, 16, 32, 64};
  if (std::getenv("GRAPEVINE_BENCH_SMOKE") != nullptr) numbers = {3};
  for (const std::string transport : {"tcp", "shm"})
    for (const std::int32_t processes : numbers) {
      if (processes < 1) fail("give numbers of processes");
      measure(transport, processes);
    }
  return 0;
}

}  // namespace
}  // namespace grapevine

int main(int argc, char** argv) { return grapevine::run(argc, argv); }
