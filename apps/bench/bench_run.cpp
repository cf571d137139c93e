#include "apps/bench/bench_run.hpp"

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "actors/run/delay.hpp"
#include "apps/bench/address_folder.hpp"
#include "apps/bench/bench_partial.hpp"
#include "apps/bench/bench_rank.hpp"
#include "apps/bench/temporary_folder.hpp"
#include "apps/launch/launch_job.hpp"
#include "gpu/threads/math_threads.hpp"
#include "messages/text/exception_line.hpp"
#include "net/auto/auto.hpp"
#include "net/inproc/inproc.hpp"
#include "net/shm/shm.hpp"
#include "net/tcp/tcp.hpp"
#include "net/tcp/tls/tls_context.hpp"
#include "net/ucx/ucx.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kRendezvousTime{60};

BenchPlan plan_of(const BenchOptions& options) {
  BenchPlan plan;
  plan.bytes = options.bytes;
  plan.iterations = options.iterations;
  plan.all_reduce = all_reduces().at(options.all_reduce);
  return plan;
}

// solo, majority, quorum and, for comparison, all ranks.
PartialBenchPlan partial_plan_of(const BenchOptions& options) {
  const std::int32_t quorum = options.quorum > 0 ? options.quorum : options.ranks / 2 + 1;
  PartialBenchPlan plan;
  plan.plan = plan_of(options);
  plan.policies = {{"solo", Trigger::Kind::first_ready, 1},
                   {"majority", Trigger::Kind::initiator, 1},
                   {"quorum " + std::to_string(quorum), Trigger::Kind::quorum, quorum},
                   {"all", Trigger::Kind::quorum, options.ranks}};
  for (const std::string& skew : options.skew) plan.skews.push_back(*parse_duration(skew));
  return plan;
}

std::shared_ptr<BenchRank> make_rank(const BenchOptions& options, Transport& transport, Rank rank,
                                     BenchReport& report) {
  if (options.kind == "partial")
    return make_partial_rank(transport, rank, partial_plan_of(options),
                             [&report](PartialTimes times) { report.add(std::move(times)); });
  const auto make = options.kind == "p2p" ? make_point_to_point_rank : make_all_reduce_rank;
  return make(transport, rank, plan_of(options));
}

Expected<std::unique_ptr<RemoteTransport>> make_remote(const BenchOptions& bench) {
  const std::string& name = bench.transport;
  if (name == "ucx") return make_ucx_transport({});
  if (name == "shm") return make_shm_transport({});
  TcpOptions options;
  options.host = "127.0.0.1";
  auto certificates = tcp::load_certificates(bench.tls);
  if (!certificates) return certificates.error();
  options.tls = *std::move(certificates);
  auto tcp = make_tcp_transport(options);
  if (!tcp || name == "tcp") return tcp;
  AutoParts parts;
  parts.tcp = *std::move(tcp);
  if (auto shm = make_shm_transport({})) parts.shm = *std::move(shm);
  return make_auto_transport(std::move(parts));
}

Placement one_rank_each(std::int32_t own_process, std::int32_t processes) {
  Placement placement;
  placement.own_process = own_process;
  for (std::int32_t process = 0; process < processes; ++process) {
    placement.process_of.push_back(process);
    placement.host_of.emplace_back("localhost");
  }
  return placement;
}

LaunchedCommand rank_command(const BenchOptions& options, std::int32_t rank,
                             const std::string& program, const std::string& folder) {
  LaunchedCommand launched;
  launched.placement.rank = launched.placement.local_rank = rank;
  launched.placement.ranks = launched.placement.local_ranks = options.ranks;
  launched.placement.host = "this host";
  std::vector<std::string>& arguments = launched.command.arguments;
  arguments = {program, "bench", options.kind};
  const auto add = [&](const char* option, std::string value) {
    arguments.emplace_back(option);
    arguments.push_back(std::move(value));
  };
  add("--transport", options.transport);
  add("--ranks", std::to_string(options.ranks));
  add("--bytes", fmt::format("{}", fmt::join(options.bytes, ",")));
  add("--iterations", std::to_string(options.iterations));
  add("--all-reduce", options.all_reduce);
  if (options.kind == "partial") {
    add("--skew", fmt::format("{}", fmt::join(options.skew, ",")));
    add("--quorum", std::to_string(options.quorum));
  }
  add("--as-rank", std::to_string(rank));
  add("--meet-in", folder);
  if (!options.tls.empty()) add("--tls", options.tls);
  if (options.json) arguments.emplace_back("--json");
  return launched;
}

}  // namespace

const std::map<std::string, ExactReduce>& all_reduces() {
  static const std::map<std::string, ExactReduce> all = {{"ring", ExactReduce::ring},
                                                         {"direct", ExactReduce::direct},
                                                         {"doubling", ExactReduce::doubling},
                                                         {"auto", ExactReduce::automatic}};
  return all;
}

Expected<void> run_inproc(const BenchOptions& options, BenchReport& report) {
  const std::unique_ptr<Transport> transport = make_inproc_transport(options.ranks);
  std::vector<std::shared_ptr<BenchRank>> ranks;
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    ranks.push_back(make_rank(options, *transport, rank, report));
    if (auto attached = ranks.back()->attach(); !attached) return attached;
  }
  const auto add = [&](std::int64_t bytes, std::vector<double> s) {
    report.add(bytes, std::move(s));
  };
  std::vector<Expected<void>> done(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      limit_math_threads(1);
      try {
        done[i] = ranks[i]->run(add);
      } catch (...) {  // e.g. no memory
        done[i] = Error{Errc::failed, exception_line(std::current_exception())};
      }
      // The others need not wait for it.
      if (!done[i]) transport->detach(static_cast<Rank>(i));
    });
  for (std::thread& thread : threads) thread.join();
  // The error of a failed rank counts more than that of a rank that lost it.
  for (const bool peers_too : {false, true})
    for (const Expected<void>& result : done)
      if (!result && (peers_too || result.error().code != Errc::peer_down)) return result;
  return {};
}

Expected<void> run_rank(const BenchOptions& options, BenchReport& report) {
  limit_math_threads(1);
  auto transport = make_remote(options);
  if (!transport) return transport.error();
  const AddressFolder folder(options.meet_in);
  if (auto said = folder.publish(options.as_rank, (*transport)->address()); !said) return said;
  const auto addresses = folder.all(options.ranks, kRendezvousTime);
  if (!addresses) return addresses.error();
  const Placement placement = one_rank_each(options.as_rank, options.ranks);
  if (auto connected = (*transport)->connect(*addresses, placement, kRendezvousTime); !connected)
    return connected;
  const auto rank = make_rank(options, **transport, options.as_rank, report);
  if (auto attached = rank->attach(); !attached) return attached;
  return rank->run([&](std::int64_t bytes, std::vector<double> seconds) {
    report.add(bytes, std::move(seconds));
  });
}

Expected<void> run_processes(const BenchOptions& options, Console& console) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return Error{Errc::io, "/proc/self/exe: " + error.message()};
  const auto folder = TemporaryFolder::make();
  if (!folder) return folder.error();
  std::vector<LaunchedCommand> commands;
  for (std::int32_t rank = 0; rank < options.ranks; ++rank)
    commands.push_back(rank_command(options, rank, self.string(), (*folder)->path()));
  SignalPipe signals;
  LaunchJobOptions job_options;
  job_options.plain_output = true;
  job_options.grace = std::chrono::seconds(5);
  LaunchJob job(job_options, signals, console);
  if (auto started = job.start(commands); !started) return started;
  return job.wait();
}

}  // namespace grapevine
