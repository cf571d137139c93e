#include "apps/train/train_place.hpp"

#include <fmt/format.h>
#include <net/if.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "actors/cluster/process_supervision.hpp"
#include "actors/cluster/rendezvous.hpp"
#include "actors/protocol/build_version.hpp"
#include "actors/run/peer/device_receives.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/train/train_resume.hpp"
#include "apps/train/train_trace.hpp"
#include "messages/text/names.hpp"
#include "net/addresses.hpp"
#include "net/auto/auto.hpp"
#include "net/auto/wires.hpp"
#include "net/inproc/inproc.hpp"
#include "net/shm/shm.hpp"
#include "net/tcp/tcp.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/token.hpp"
#include "net/ucx/ucx.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kDefaultWorkers = 4;

// `launched`: by a launcher, even if only this process.
Expected<void> check_transport(const TrainOptions& o, bool launched, bool several_processes) {
  const std::vector<std::string> valid = {"inproc", "auto", "shm", "tcp", "ucx"};
  if (std::find(valid.begin(), valid.end(), o.transport) == valid.end())
    return unknown_name("--transport", o.transport, valid);
  if (o.transport == "inproc" && several_processes)
    return bad_input(
        "--transport inproc: a launcher started several processes, leave it out, or use auto");
  const bool saved = !o.resume.empty();  // perhaps of several processes
  if (o.transport != "inproc" && o.transport != "auto" && !launched && !saved)
    return bad_input("--transport " + o.transport +
                     ": all workers share this process, use inproc, or start several processes "
                     "with 'grapevine launch -n N -- train …'");
  if (o.transport == "ucx" && !ucx_built_in())
    return bad_input(
        "--transport ucx: UCX is not in this build: install libucx-dev and build "
        "again, or use tcp");
  return {};
}

// Before work starts: what is between hosts is encrypted, or the user has said that it need not be.
Expected<void> check_encryption(TrainOptions& o, const std::optional<LaunchedProcess>& launched) {
  if (o.trust_fabric && o.tls.empty())
    return bad_input("--trust-fabric goes with --tls DIR: without it nothing is encrypted");
  if (auto loaded = load_certificates(o); !loaded) return loaded;
  const bool several_hosts = launched && launched->local_processes < launched->processes;
  if (o.tls.empty() || o.trust_fabric || o.transport != "ucx" || !several_hosts) return {};
  return bad_input(
      "--transport ucx with --tls: UCX does not encrypt what goes between hosts: use auto or tcp, "
      "or --trust-fabric where no other user reaches the network of this job");
}

// "node", as the ranks of a node or of an inner level's groups: as many as there are on this
// machine.
Expected<void> size_nodes(Wiring& wiring, bool launched, std::int64_t ranks_here) {
  const std::map<std::string, std::string> keys = wiring.keys();
  for (const auto& [key, value] : keys) {
    const bool is_size = key == "hierarchy" || level_key(key).key == kGroupRanksKey;
    if (!is_size || value != "node") continue;
    if (!launched)
      return bad_input("wiring." + key +
                       " = 'node': no launcher gives the ranks of a node: give the number");
    if (auto set = wiring.set(key, std::to_string(ranks_here)); !set) return set;
  }
  return {};
}

// Inside one operation; the devices and processes of a worker share its threads. `workers_here`: on
// this machine.
int threads_per_device(const TrainOptions& options, std::int64_t workers_here) {
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int of_worker =
      options.threads > 0 ? options.threads : cores / static_cast<int>(workers_here);
  return std::max(
      1, of_worker / static_cast<int>(options.devices_per_worker * options.processes_per_worker));
}

// One IPv4 address of each network interface, without loopback.
std::vector<std::string> network_addresses() {
  std::vector<std::string> addresses;
  const std::unique_ptr<struct if_nameindex, decltype(&::if_freenameindex)> interfaces(
      ::if_nameindex(), &::if_freenameindex);
  for (const struct if_nameindex* entry = interfaces.get();
       entry != nullptr && entry->if_index != 0; ++entry)
    if (auto address = interface_address(entry->if_name); address && !is_loopback_host(*address))
      addresses.push_back(*std::move(address));
  return addresses;
}

// The address of this machine where its name, which is that of the head, leads to loopback: that of
// the default route, or of the only network. `loopback`: without a network, as all processes are
// here then.
Expected<std::string> address_beside(const std::string& loopback, const std::string& head_host) {
  if (std::string address = tcp::primary_address(false); !is_loopback_host(address)) return address;
  const std::vector<std::string> networks = network_addresses();
  if (networks.size() == 1) return networks.front();
  if (!networks.empty())
    return bad_input("'" + head_host +
                     "' is a loopback address on this machine, where no other reaches it, and its "
                     "networks have several addresses (" +
                     networks[0] + ", " + networks[1] + (networks.size() > 2 ? ", …" : "") +
                     "): choose one with --network-interface");
  std::string address = tcp::primary_address(true);
  return is_loopback_host(address) ? loopback : address;
}

// The address of this process that leads to the head. /etc/hosts may give a machine's own name a
// loopback address, as Debian does (127.0.1.1): other machines would not find this process there.
Expected<std::string> address_towards_head(const LaunchedProcess& launched) {
  std::string own = own_address_towards(launched.head_host);
  const bool all_here = launched.local_processes == launched.processes;
  if (all_here || is_loopback_host(launched.head_host) || !is_loopback_host(own)) return own;
  return address_beside(own, launched.head_host);
}

// The address of this process for others: on the given interface, whose name may also be an address
// or a host name, else on the one that leads to the head.
Expected<std::string> own_address(const TrainOptions& o, const LaunchedProcess& launched) {
  if (o.network_interface.empty()) return address_towards_head(launched);
  auto address = interface_address(o.network_interface);
  const bool is_host = !own_address_towards(o.network_interface).empty();
  return address || !is_host ? address : o.network_interface;
}

// The address on which the head listens: exactly the one to which the others connect. Empty: all.
std::string listening_host(const TrainOptions& o, const LaunchedProcess& launched) {
  if (!launched.listen_host.empty())
    return launched.listen_host == "0.0.0.0" ? "" : launched.listen_host;
  const bool all_here = launched.local_processes == launched.processes;
  std::string host = listening_address(launched.head_host, all_here);
  if (!host.empty() || o.network_interface.empty()) return host;
  const auto address = interface_address(o.network_interface);
  return address ? *address : listening_address(o.network_interface, all_here);
}

// Under `launch` and nodes each job has a secret; other launchers make none. `cluster`: of the
// head.
void warn_without_secret(const ClusterConfig& cluster) {
  if (!cluster.secret.empty() || cluster.tls || is_loopback_host(cluster.listen_host)) return;
  spdlog::warn(
      "process 0 listens on {}, port {}, and this job has no secret: any program that reaches the "
      "port may join or end it. Set {} to one random value in all processes (docs/security.md)",
      cluster.listen_host.empty() ? "all interfaces" : cluster.listen_host, cluster.head_port,
      kJobTokenVariable);
}

// More than any message between ranks has: a larger one is malformed.
CodecLimits limits_for(std::int64_t parameters) {
  constexpr std::int64_t kMargin = 1 << 20;   // buffers, and models that are very small
  constexpr std::uint64_t kBytesOfEach = 64;  // parameter, in all tensors of a message together
  constexpr std::int64_t kElementsOfEach = 4;
  CodecLimits limits;
  limits.max_elements = kElementsOfEach * (parameters + kMargin);
  limits.max_payload_bytes = kBytesOfEach * static_cast<std::uint64_t>(parameters + kMargin);
  return limits;
}

using Made = Expected<std::unique_ptr<RemoteTransport>>;

// `tls`: see UcxOptions; empty: as the environment says.
Made make_ucx(const TrainJob& job, const std::string& tls = "") {
  const TrainOptions& o = job.options;
  if (auto known = check_network_devices(o.network_interface); !known) return known.error();
  std::vector<std::shared_ptr<DeviceRuntime>> devices;
  for (const PeerDevice& device : job.run.peer_devices) devices.push_back(device.peer);
  auto memory = memory_for_receives(devices);
  if (!memory) return memory.error();
  UcxOptions options;
  options.device_memory = *std::move(memory);
  options.net_devices = o.network_interface;
  options.tls = tls;
  return make_ucx_transport(options);
}

Made make_shm(const TrainJob& job) {
  ShmOptions options;
  options.limits = limits_for(job.parameters);
  const Heartbeats heartbeats = heartbeats_for(from_seconds(job.options.timeout_s));
  options.heartbeat = heartbeats.interval;
  options.heartbeat_timeout = heartbeats.silence;
  return make_shm_transport(options);
}

Made make_tcp(const TrainJob& job, bool& address_unknown) {
  const TrainOptions& o = job.options;
  const LaunchedProcess& launched = *job.launched;
  auto own_host = own_address(o, launched);
  if (!own_host) return own_host.error();
  TcpOptions options;
  options.limits = limits_for(job.parameters);
  // The head's name may have an address later: until then nothing leads there, and other machines
  // may come to any interface.
  const bool all_here = launched.local_processes == launched.processes;
  address_unknown = own_host->empty() && !all_here;
  if (!own_host->empty()) options.host = *std::move(own_host);
  if (address_unknown) options.host = "0.0.0.0";
  const Heartbeats heartbeats = heartbeats_for(from_seconds(o.timeout_s));
  options.heartbeat = heartbeats.interval;
  options.heartbeat_timeout = heartbeats.silence;
  options.tls = o.certificates;
  return make_tcp_transport(options);
}

// Without the wires that this process cannot have.
Made make_auto(const TrainJob& job, bool& address_unknown) {
  auto tcp = make_tcp(job, address_unknown);
  if (!tcp) return tcp;
  AutoParts parts;
  parts.tcp = *std::move(tcp);
  if (auto shm = make_shm(job))
    parts.shm = *std::move(shm);
  else
    spdlog::info("--transport auto without shared memory: {}", shm.error().message);
  const bool may_use_ucx = !job.options.certificates || job.options.trust_fabric;
  if (ucx_built_in() && may_use_ucx && wires::has_fast_device()) {
    // Over shared memory UCX does not notice a dead process, and the run continues after losses.
    const char* const chosen = std::getenv("UCX_TLS");  // NOLINT(concurrency-mt-unsafe)
    if (auto ucx = make_ucx(job, chosen ? "" : "^posix,sysv,cma,xpmem,knem"))
      parts.ucx = *std::move(ucx);
    else
      spdlog::info("--transport auto without ucx: {}", ucx.error().message);
  }
  return make_auto_transport(std::move(parts));
}

Made make_remote_transport(const TrainJob& job, bool& address_unknown) {
  const std::string& transport = job.options.transport;
  if (transport == "ucx") return make_ucx(job);
  if (transport == "shm") return make_shm(job);
  if (transport == "tcp") return make_tcp(job, address_unknown);
  return make_auto(job, address_unknown);
}

// With --max-ranks: `launched` gets the processes that the job has places for, and the run the
// ranks that begin it.
Expected<void> make_places(TrainJob& job, std::optional<LaunchedProcess>& launched) {
  const TrainOptions& o = job.options;
  if (o.max_ranks == 0) return {};
  const std::string name = "--max-ranks " + std::to_string(o.max_ranks);
  if (!launched)
    return bad_input(
        name +
        ": others join a run that a launcher has started: begin with 'grapevine launch "
        "-n N -- train …', N may be 1");
  if (o.workers < 1) return {};  // refused elsewhere
  const std::int64_t begin = o.workers * launched->processes;
  if (o.max_ranks % o.workers != 0)
    return bad_input(
        fmt::format("{}: each process has {} ranks (--workers): give a multiple", name, o.workers));
  if (o.place ? o.max_ranks != begin : o.max_ranks < begin)
    return bad_input(fmt::format("{}: {} ranks {}: give at least as many", name, begin,
                                 o.place ? "are in the job" : "begin the run"));
  if (o.max_ranks == begin) return {};
  job.run.initial_workers = static_cast<std::int32_t>(begin);
  launched->processes = static_cast<std::int32_t>(o.max_ranks / o.workers);
  return {};
}

}  // namespace

Expected<void> find_place(TrainJob& job) {
  TrainOptions& o = job.options;
  auto launched = read_launcher_environment([](const char* name) { return std::getenv(name); });
  if (!launched) return launched.error();
  if (o.place) *launched = o.place;
  const bool spoken = launched->has_value();
  const bool continues = std::getenv(kReportBeginVariable) != nullptr;
  auto split = split_processes(o, continues, *launched);
  if (!split) return split.error();
  job.processes = *std::move(split);
  if (o.workers == kWorkersAsUsual) o.workers = spoken ? 1 : kDefaultWorkers;
  if (auto made = make_places(job, *launched); !made) return made;
  const bool several = spoken && (*launched)->processes > 1;
  if (several) job.launched = std::move(*launched);
  // The job file of a run in one process has it: the transport is chosen anew.
  const bool of_file = o.places.count("--transport") > 0;
  if (several && of_file && o.transport == "inproc") o.transport.clear();
  if (o.transport.empty()) o.transport = several ? "auto" : "inproc";
  const std::int32_t processes = several ? job.launched->processes : 1;
  const std::string each =
      several ? ", in each of " + std::to_string(processes) + " processes" : "";
  if (auto checked = check_range("--workers", o.workers, 1, kMaxWorkers / processes, each);
      !checked)
    return checked;
  if (auto checked = check_transport(o, spoken, several); !checked) return checked;
  if (auto checked = check_encryption(o, job.launched); !checked) return checked;
  if (!several) o.transport = "inproc";  // a launcher's only process has no peer process
  const auto here = static_cast<Rank>(o.workers);
  const Rank first = several ? job.launched->process * here : 0;
  for (Rank rank = first; rank < first + here; ++rank) job.local_ranks.push_back(rank);
  const std::int32_t neighbours = several ? job.launched->local_processes : 1;
  job.run.threads = threads_per_device(o, o.workers * neighbours);
  if (auto sized = size_nodes(job.wiring, spoken, o.workers * neighbours); !sized) return sized;
  o.workers *= processes;
  return {};
}

std::optional<Duration> silence_of_lost_process(const TrainJob& job) {
  const double seconds = job.options.lost_after_s;
  const bool ends = job.launched && job.launched->ends_with_any_process;
  return seconds > 0 && !ends ? std::optional(from_seconds(seconds)) : std::nullopt;
}

Expected<void> make_transport(TrainJob& job) {
  if (!job.launched) {
    job.run.transport = make_inproc_transport(job.run.world_size());
    return {};
  }
  ClusterConfig cluster;
  auto made = make_remote_transport(job, cluster.own_address_unknown);
  if (!made) return made.error();
  cluster.transport = std::move(*made);
  cluster.transport_name = job.options.transport;
  cluster.identity = job.run.identity;
  // On which wire a pair uses, both ends must agree.
  if (job.options.certificates)
    cluster.identity["trust-fabric"] = job.options.trust_fabric ? "true" : "false";
  cluster.tls = job.options.certificates;
  cluster.process = job.launched->process;
  cluster.processes = job.launched->processes;
  cluster.initial_processes =
      job.run.initial_workers / static_cast<std::int32_t>(job.local_ranks.size());
  cluster.head_host = job.launched->head_host;
  cluster.head_port = job.launched->head_port;
  if (job.is_head()) cluster.listen_host = listening_host(job.options, *job.launched);
  if (const char* token = std::getenv(kJobTokenVariable)) cluster.secret = token;
  if (job.is_head()) warn_without_secret(cluster);
  cluster.job = job.launched->job;
  cluster.own_host = machine_name();
  cluster.version = build_version();
  cluster.out = job.out;
  cluster.timeout = from_seconds(job.options.join_timeout_s);
  cluster.place_trace = [resumed = job.run.resume.has_value()](const std::string& out, bool joins,
                                                               TraceSettings& trace) {
    return place_trace(out, resumed || joins, trace);
  };
  job.run.transport = cluster.transport;
  job.run.cluster = std::move(cluster);
  return {};
}

}  // namespace grapevine
