#include "apps/bench/bench_command.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "actors/run/delay.hpp"
#include "apps/bench/bench_mix.hpp"
#include "apps/bench/bench_run.hpp"
#include "apps/bench/bench_sparse.hpp"
#include "apps/bench/bench_trace.hpp"
#include "apps/console/verb_options.hpp"
#include "messages/text/names.hpp"
#include "net/ucx/ucx.hpp"

namespace grapevine {
namespace {

constexpr std::int32_t kMaxRanks = 256;
constexpr std::int64_t kMaxMessageBytes = std::int64_t{1} << 33;
constexpr std::int64_t kMaxIterations = 10'000'000;

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
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
