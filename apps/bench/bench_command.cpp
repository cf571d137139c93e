#include "apps/bench/bench_command.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <ostream>
#include <thread>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "actors/run/delay.hpp"
#include "apps/bench/bench_mix.hpp"
#include "apps/bench/bench_partial.hpp"
#include "apps/bench/bench_rank.hpp"
#include "apps/bench/bench_sparse.hpp"
#include "apps/bench/bench_trace.hpp"
#include "apps/bench/temporary_folder.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/launch/launch_job.hpp"
#include "apps/train/quantiles.hpp"
#include "gpu/math_threads.hpp"
#include "messages/text/exception_line.hpp"
#include "messages/text/names.hpp"
#include "net/auto/auto.hpp"
#include "net/inproc/inproc.hpp"
#include "net/shm/shm.hpp"
#include "net/tcp/tcp.hpp"
#include "net/tcp/tls/tls_context.hpp"
#include "net/ucx/ucx.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMaxRanks = 256;
constexpr std::int64_t kMaxMessageBytes = std::int64_t{1} << 33;
constexpr std::int64_t kMaxIterations = 10'000'000;
constexpr std::chrono::seconds kRendezvousTime{60};

struct BenchOptions {
  std::string kind;
  std::string transport = "inproc";
  std::int32_t ranks = 2;
  std::vector<std::int64_t> bytes = {8, 1'000, 1'000'000, 25'000'000, 100'000'000};
  std::int64_t iterations = 20;
  std::vector<std::string> skew = {"0ms", "1ms", "4ms"};  // partial
  std::string all_reduce = "ring";                        // allreduce: as in a wiring
  std::int32_t quorum = 0;                                // partial; 0: more than half
  std::vector<double> densities = {0.001, 0.01};          // sparse
  std::string tls;                                        // folder; empty: no encryption
  bool json = false;
  // Of the processes that this verb starts; not shown by --help.
  std::int32_t as_rank = -1;
  std::string meet_in;
};

// Prints a line for each size.
class BenchReport {
 public:
  BenchReport(const BenchOptions& options, std::ostream& out) : options_(options), out_(out) {}

  void add(std::int64_t bytes, std::vector<double> seconds) {
    const Quantiles times = quantiles_of(std::move(seconds));
    if (options_.json)
      print(record(bytes, times, bandwidth(bytes, times.median)));
    else
      print_line(bytes, times);
    out_.flush();
  }

  void add(PartialTimes partial) {
    const Quantiles times = quantiles_of(std::move(partial.seconds));
    if (options_.json) {
      nlohmann::ordered_json line = record(partial.bytes, times, nullptr);
      line["activation"] = partial.policy;
      line["skew_s"] = to_seconds(partial.skew);
      line["active_ranks"] = partial.active;
      print(line);
    } else {
      print_line(partial, times);
    }
    out_.flush();
  }

 private:
  // In 1e9 bytes/s, of the payload one way or over the bus.
  double bandwidth(std::int64_t bytes, double seconds) const {
    const double share =
        options_.kind == "p2p" ? 1 : 2 * (options_.ranks - 1) / static_cast<double>(options_.ranks);
    return share * static_cast<double>(bytes) / seconds / 1e9;
  }

  // The output of every kind.
  nlohmann::ordered_json record(std::int64_t bytes, const Quantiles& times,
                                const nlohmann::ordered_json& bandwidth) const {
    nlohmann::ordered_json line;
    line["kind"] = options_.kind;
    line["transport"] = options_.transport;
    line["ranks"] = options_.ranks;
    line["bytes"] = bytes;
    line["median_s"] = times.median;
    line["p10_s"] = times.p10;
    line["p99_s"] = times.p99;
    line["bandwidth_gbps"] = bandwidth;
    return line;
  }

  void print(const nlohmann::ordered_json& line) { out_ << line.dump() << '\n'; }

  void print_line(std::int64_t bytes, const Quantiles& times) {
    if (!std::exchange(headed_, true)) print_head();
    char text[160];
    std::snprintf(text, sizeof text, "%12lld  %12.1f  %12.1f  %12.1f  %8.3f\n",
                  static_cast<long long>(bytes), times.median * 1e6, times.p10 * 1e6,
                  times.p99 * 1e6, bandwidth(bytes, times.median));
    out_ << text;
  }

  void print_line(const PartialTimes& partial, const Quantiles& times) {
    if (!std::exchange(headed_, true))
      out_ << "partial all-reduce over " << options_.transport << ", " << options_.ranks
           << " ranks, " << options_.iterations
           << " iterations; rank r is ready at r x skew; mean wait of a rank for the sum\n"
              "       bytes  skew, ms  activation        median, us       p10, us       p99, us  "
              "active ranks\n";
    char text[160];
    std::snprintf(text, sizeof text, "%12lld  %8.3f  %-14s  %12.1f  %12.1f  %12.1f  %12.2f\n",
                  static_cast<long long>(partial.bytes), to_seconds(partial.skew) * 1e3,
                  partial.policy.c_str(), times.median * 1e6, times.p10 * 1e6, times.p99 * 1e6,
                  partial.active);
    out_ << text;
  }

  void print_head() {
    out_ << options_.kind << " over " << options_.transport << ", " << options_.ranks << " ranks, "
         << options_.iterations << " iterations; "
         << (options_.kind == "p2p"
                 ? "time of a message from rank 0 to 1, up to 8 bytes of a round trip"
                 : "bandwidth: 2(N-1)/N x bytes over the median time")
         << "\n       bytes    median, us       p10, us       p99, us      GB/s\n";
  }

  const BenchOptions& options_;
  std::ostream& out_;
  bool headed_ = false;
};

// By their names in a wiring.
const std::map<std::string, ExactReduce>& all_reduces() {
  static const std::map<std::string, ExactReduce> all = {{"ring", ExactReduce::ring},
                                                         {"direct", ExactReduce::direct},
                                                         {"doubling", ExactReduce::doubling},
                                                         {"auto", ExactReduce::automatic}};
  return all;
}

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

// ---- All ranks in this process

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

// ---- A rank of its own in a process

// Processes that share a folder find each other's addresses in it.
class Rendezvous {
 public:
  explicit Rendezvous(fs::path folder) : folder_(std::move(folder)) {}

  Expected<void> publish(std::int32_t process, const std::string& address) const {
    const fs::path unfinished = file(process).string() + ".tmp";
    std::error_code error;
    {
      std::ofstream out(unfinished, std::ios::binary);
      out << address;
      if (!out.flush()) return Error{Errc::io, unfinished.string() + ": cannot be written"};
    }
    fs::rename(unfinished, file(process), error);
    if (error) return Error{Errc::io, unfinished.string() + ": " + error.message()};
    return {};
  }

  Expected<std::vector<std::string>> all(std::int32_t processes) const {
    const auto deadline = std::chrono::steady_clock::now() + kRendezvousTime;
    std::vector<std::string> addresses;
    for (std::int32_t process = 0; process < processes; ++process) {
      std::error_code ignored;
      while (!fs::exists(file(process), ignored)) {
        if (std::chrono::steady_clock::now() > deadline)
          return Error{Errc::timeout, "rank " + std::to_string(process) +
                                          " has not started after " +
                                          std::to_string(kRendezvousTime.count()) + " s"};
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      std::ifstream in(file(process), std::ios::binary);
      addresses.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    return addresses;
  }

 private:
  fs::path file(std::int32_t process) const {
    return folder_ / (std::to_string(process) + ".address");
  }

  const fs::path folder_;
};

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

Expected<void> run_rank(const BenchOptions& options, BenchReport& report) {
  limit_math_threads(1);
  auto transport = make_remote(options);
  if (!transport) return transport.error();
  const Rendezvous rendezvous(options.meet_in);
  if (auto said = rendezvous.publish(options.as_rank, (*transport)->address()); !said) return said;
  const auto addresses = rendezvous.all(options.ranks);
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

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
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

// The processes print for this one: rank 0 its results, all of them their errors.
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

class BenchCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app_ = &app;
    app.add_option("kind", o_.kind,
                   "p2p: messages from rank 0 to rank 1. allreduce: the sum on all ranks. partial: "
                   "sums that do not wait "
                   "for all. In this process: sparse: selecting and merging entries. mix: the "
                   "arithmetic of a step. trace: recording, writing and reading a message trace");
    add_option(
        app, "transport", o_.transport,
        "inproc (all ranks in this process), or auto, shm, tcp or ucx (a process for each rank)");
    add_option(app, "ranks", o_.ranks, "number of ranks");
    bytes_option_ = add_list(app, "bytes", o_.bytes, "sizes to measure in bytes, comma-separated");
    add_option(app, "iterations", o_.iterations, "measurements of each size");
    add_option(app, "all-reduce", o_.all_reduce, "allreduce: ring | direct | doubling | auto");
    add_list(app, "skew", o_.skew,
             "partial: rank r is ready after r times this duration; comma-separated");
    add_option(app, "quorum", o_.quorum, "partial: ranks of the quorum [more than half]");
    add_list(app, "density", o_.densities, "sparse: shares of entries to keep, comma-separated");
    add_option(app, "tls", o_.tls, "with tcp: encrypt, with the certificates of this folder [off]");
    add_switch(app, "json", o_.json, "print one JSON object per size");
    add_option(app, "config", config_, "TOML file with options");
    app.add_option("--as-rank", o_.as_rank)->group("");
    app.add_option("--meet-in", o_.meet_in)->group("");
    app.footer(
        "p2p: the time of several messages in a row and of the receiver's answer, divided by the "
        "number of messages; up to 8 bytes: the time of a round trip.\nallreduce: the time from a "
        "barrier to the sum on rank 0; GB/s: 2(N-1)/N x bytes over the median.\nUCX_TLS and "
        "UCX_NET_DEVICES choose what ucx uses.\nsparse: lines for select, select-sampled, "
        "torch-topk and merge; mix: for memcpy, fold, meet, debias, sgd-step, torch-sgd and "
        "push-sum-step; --bytes of both is 104857600 by default. trace: lines for record, encode, "
        "write and read; --bytes, the size of the file, is 10000000 by default.");
  }

  Expected<void> run(Console& console) override {
    if (auto read = read_config_file(*app_, config_); !read) return read;
    if (auto checked = check(); !checked) return checked;
    if (o_.transport != "tcp") o_.tls.clear();
    if (is_of_one_process()) return run_here(console);
    BenchReport report(o_, console.out);
    if (o_.transport == "inproc") return run_inproc(o_, report);
    if (o_.as_rank >= 0) return run_rank(o_, report);
    return run_processes(o_, console);
  }

 private:
  bool is_of_one_process() const {
    return o_.kind == "sparse" || o_.kind == "mix" || o_.kind == "trace";
  }

  Expected<void> run_here(Console& console) {
    const std::int64_t usual = o_.kind == "trace" ? 10'000'000 : std::int64_t{100} << 20;
    if (bytes_option_->count() == 0) o_.bytes = {usual};
    if (o_.kind == "mix") return run_mix_bench({o_.bytes, o_.iterations, o_.json}, console.out);
    if (o_.kind == "trace") return run_trace_bench({o_.bytes, o_.iterations, o_.json}, console.out);
    return run_sparse_bench({o_.bytes, o_.densities, o_.iterations, o_.json}, console.out);
  }

  // The environment variable is for all commands: it does not ask for TLS here.
  bool asks_for_tls() const {
    const char* const variable = std::getenv(environment_name("tls").c_str());
    return !o_.tls.empty() && (variable == nullptr || o_.tls != variable);
  }

  Expected<void> check() const {
    static const std::vector<std::string> kinds = {"p2p",    "allreduce", "partial",
                                                   "sparse", "mix",       "trace"};
    if (o_.kind.empty())
      return bad_input("no benchmark given: choose p2p, allreduce, partial, sparse, mix or trace");
    if (std::find(kinds.begin(), kinds.end(), o_.kind) == kinds.end())
      return unknown_name("benchmark", o_.kind, kinds);
    for (const std::string& skew : o_.skew)
      if (const auto parsed = parse_duration(skew); !parsed)
        return bad_input("--skew '" + skew + "': expected " + parsed.error().message);
    if (all_reduces().count(o_.all_reduce) == 0)
      return unknown_name("--all-reduce", o_.all_reduce, {"ring", "direct", "doubling", "auto"});
    if (o_.quorum != 0)
      if (auto checked = check_range("--quorum", o_.quorum, 1, o_.ranks); !checked) return checked;
    for (const double density : o_.densities)
      if (!(density > 0 && density <= 1))
        return bad_input("--density " + short_number(density) +
                         ": expected numbers above 0, at most 1");
    static const std::vector<std::string> transports = {"inproc", "auto", "shm", "tcp", "ucx"};
    if (std::find(transports.begin(), transports.end(), o_.transport) == transports.end())
      return unknown_name("transport", o_.transport, transports);
    if (o_.transport == "ucx" && !ucx_built_in())
      return bad_input(
          "--transport ucx: UCX is not in this build: install libucx-dev and build "
          "again, or use tcp");
    const std::int32_t least = o_.kind == "p2p" ? 2 : 1;
    if (auto checked = check_range("--ranks", o_.ranks, least, kMaxRanks); !checked) return checked;
    const std::int64_t least_bytes = is_of_one_process() ? 4 : 1;
    for (const std::int64_t bytes : o_.bytes)
      if (auto checked = check_range("--bytes", bytes, least_bytes, kMaxMessageBytes); !checked)
        return checked;
    if (auto checked = check_range("--iterations", o_.iterations, 1, kMaxIterations); !checked)
      return checked;
    if (asks_for_tls() && o_.transport != "tcp")
      return bad_input("--tls goes with --transport tcp: " + o_.transport + " does not encrypt");
    if (o_.as_rank >= o_.ranks || (o_.as_rank >= 0) != !o_.meet_in.empty())
      return bad_input("--as-rank and --meet-in are for the processes that bench starts");
    return {};
  }

  CLI::App* app_ = nullptr;
  BenchOptions o_;
  std::string config_;
  CLI::Option* bytes_option_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace grapevine
