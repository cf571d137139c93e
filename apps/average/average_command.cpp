#include "apps/average/average_command.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "algorithms/wiring/make_parts.hpp"
#include "apps/average/averaging_run.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/train/train_options.hpp"
#include "messages/text/names.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

// Values of all ranks together; each is held several times over.
constexpr std::int64_t kMaxValues = std::int64_t{1} << 26;

constexpr std::int64_t kMaxRounds = 10'000'000;

// The keys of a method, and the graph that it takes by default.
struct Method {
  const char* name;
  std::map<std::string, std::string> keys;
  const char* topology;
};

const std::vector<Method>& methods() {
  static const std::vector<Method> all = {
      {"push-sum", {{"exchange", "gossip"}, {"averaging", "push-sum"}}, "exponential"},
      {"symmetric", {{"exchange", "gossip"}, {"averaging", "symmetric"}}, "exponential"},
      {"bilateral", {{"exchange", "bilateral"}}, "bipartite-exponential"}};
  return all;
}

Expected<Method> find_method(const std::string& name) {
  std::vector<std::string> names;
  for (const Method& method : methods()) {
    if (name == method.name) return method;
    names.emplace_back(method.name);
  }
  return unknown_name("averaging method", name, names);
}

void print_json(const AveragingReport& report, std::ostream& out) {
  nlohmann::ordered_json object;
  object["round"] = report.round;
  object["mean"] = report.mean;
  object["max_deviation"] = report.max_deviation;
  object["weight_sum"] = report.weight_sum;
  out << object.dump() << '\n';
}

// Four characters for each decade of the deviation above single precision, relative to the first
// one.
std::string log_bar(double deviation, double initial) {
  constexpr double kDecades = 8;
  constexpr double kWidth = 32;
  if (!(deviation > 0) || !(initial > 0)) return "";
  const double part = 1 + std::log10(deviation / initial) / kDecades;
  return std::string(static_cast<std::size_t>(kWidth * std::clamp(part, 0.0, 1.0)), '#');
}

void print_line(const AveragingReport& report, double initial_deviation, std::ostream& out) {
  char text[128];
  std::snprintf(text, sizeof text, "%5lld  %12.6g  %13.3e  %12.6g  ",
                static_cast<long long>(report.round), report.mean, report.max_deviation,
                report.weight_sum);
  std::string line = text + log_bar(report.max_deviation, initial_deviation);
  out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
}

class AverageCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    add_option(app, "method", method_, "push-sum, symmetric or bilateral");
    add_option(app, "topology", topology_,
               "graph (see grapevine topology --help); by default exponential, for bilateral "
               "bipartite-exponential");
    add_option(app, "ranks", ranks_, "number of ranks");
    add_option(app, "peers", peers_, "destinations of a rank in a round");
    app.add_option("--set", set_, "wiring.KEY=VALUE: change a part of the wiring")
        ->envname(environment_name("set"))
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    add_option(app, "rounds", rounds_, "rounds to run");
    add_option(app, "dim", dim_, "coordinates of a value");
    add_option(app, "seed", seed_, "seed of the dropped messages");
    add_option(app, "drop", drop_, "probability that a message is lost, in [0, 1)");
    add_switch(app, "plain", plain_, "push-sum without running sums: lost messages are lost mass");
    add_switch(app, "json", json_, "print one JSON object per round");
    add_option(app, "config", config_, "TOML file with options");
    app_ = &app;
  }

  Expected<void> run(Console& console) override {
    if (auto read = read_config_file(*app_, config_); !read) return read;
    const Expected<Method> method = find_method(method_);
    if (!method) return method.error();
    if (topology_.empty()) topology_ = method->topology;
    if (auto checked = check(); !checked) return checked;
    if (drop_ == 0) return run_shipped(*method, console);
    return plain_ || method_ != "push-sum" ? run_lossy(console) : run_sums(*method, console);
  }

 private:
  // Checks beyond the parts.
  Expected<void> check() const {
    // --seed is read as a signed number: the parser wraps -1 around for unsigned ones.
    if (auto checked = first_error(
            {check_range("--rounds", rounds_, 0, kMaxRounds), check_least("--peers", peers_, 1),
             check_least("--dim", dim_, 1), check_least("--seed", seed_, 0)});
        !checked)
      return checked;
    if (ranks_ > 0 && dim_ > kMaxValues / ranks_) {
      return bad_input("--ranks " + std::to_string(ranks_) + " --dim " + std::to_string(dim_) +
                       ": use at most " + std::to_string(kMaxValues) + " values in all");
    }
    if (!(drop_ >= 0 && drop_ < 1))
      return bad_input("--drop " + number_text(drop_) + ": use a probability in [0, 1)");
    if (drop_ > 0 && !set_.empty() && (plain_ || method_ != "push-sum"))
      return bad_input(
          "--set with --drop: push-sum with running sums alone is a wiring that does not wait for "
          "lost messages; leave one of them out");
    if (plain_ && method_ != "push-sum")
      return bad_input("--plain: " + method_ + " has no running sums to switch off: leave it out");
    return {};
  }

  // The wiring of the method, with the settings on top.
  Expected<Wiring> wiring(const Method& method) const {
    TrainOptions options;
    options.algorithm = kCustomWiring;
    options.set = set_;
    auto keys = method.keys;
    keys["topology"] = topology_;
    keys["peers"] = std::to_string(peers_);
    for (const auto& [key, value] : keys)
      if (auto set = options.wiring.set(key, value); !set) return set.error();
    return effective_wiring(options);
  }

  Expected<void> run_shipped(const Method& method, Console& console) const {
    const auto parts = shipped_parts(method);
    if (!parts) return parts.error();
    AveragingRun averaging(*parts, ranks_, dim_);
    print(averaging, console.out);
    return {};
  }

  Expected<std::shared_ptr<const SharedParts>> shipped_parts(const Method& method) const {
    const auto keys = wiring(method);
    if (!keys) return keys.error();
    auto plan = resolve(*keys);
    if (!plan) return plan.error();
    if (plan->hierarchy != 1)
      return bad_input(
          "wiring.hierarchy and levels: of a group's ranks only the head has a value of its own "
          "here: leave them out");
    plan->seed = static_cast<std::uint64_t>(seed_);
    const Horizon horizon{rounds_, 1};
    return make_parts(*plan, horizon, *LrSchedule::make({}), {}, ranks_);
  }

  LossyWire wire() const { return {drop_, static_cast<std::uint64_t>(seed_)}; }

  // Roles that never wait.
  Expected<void> run_lossy(Console& console) const {
    const auto parts = lossy_parts();
    if (!parts) return parts.error();
    AveragingRun averaging(*parts, ranks_, dim_, wire(), at::kDouble);
    print(averaging, console.out);
    return {};
  }

  Expected<std::shared_ptr<const SharedParts>> lossy_parts() const {
    const auto peers = CountSchedule::parse(std::to_string(peers_));
    if (!peers) return peers.error();
    return make_lossy_parts(method_, {topology_, *peers}, ranks_);
  }

  // Gossip with running sums; beside it shares alone, which show the purpose of the sums.
  Expected<void> run_sums(Method method, Console& console) const {
    method.keys.insert({{"overlap", "true"}, {"running_sums", "true"}});
    const auto parts = shipped_parts(method);
    if (!parts) return parts.error();
    AveragingRun robust(*parts, ranks_, dim_, wire());
    if (json_ || !set_.empty()) {
      print(robust, console.out);
      return {};
    }
    const auto plain_parts = lossy_parts();
    if (!plain_parts) return plain_parts.error();
    AveragingRun plain(*plain_parts, ranks_, dim_, wire(), at::kDouble);
    print_both(robust, plain, console.out);
    return {};
  }

  void print(AveragingRun& averaging, std::ostream& out) const {
    const double initial = averaging.report().max_deviation;
    if (!json_) out << "round          mean  max deviation    weight sum  deviation, log scale\n";
    for (std::int64_t round = 0; round <= rounds_; ++round) {
      if (round > 0) averaging.advance();
      const AveragingReport report = averaging.report();
      if (json_) {
        print_json(report, out);
      } else {
        print_line(report, initial, out);
      }
    }
  }

  void print_both(AveragingRun& robust, AveragingRun& plain, std::ostream& out) const {
    out << "messages lost: " << drop_ * 100 << " %; robust: running sums, plain: shares alone\n"
        << "round    robust mean  max deviation     plain mean  max deviation  plain weights\n";
    for (std::int64_t round = 0; round <= rounds_; ++round) {
      if (round > 0) {
        robust.advance();
        plain.advance();
      }
      const AveragingReport a = robust.report();
      const AveragingReport b = plain.report();
      char line[160];
      std::snprintf(line, sizeof line, "%5lld  %13.6g  %13.3e  %13.6g  %13.3e  %13.6g\n",
                    static_cast<long long>(round), a.mean, a.max_deviation, b.mean, b.max_deviation,
                    b.weight_sum);
      out << line;
    }
  }

  std::string method_ = "push-sum";
  std::string topology_;  // empty: the method's
  std::vector<std::string> set_;
  std::int32_t ranks_ = 8;
  std::int32_t peers_ = 1;
  std::int64_t rounds_ = 20;
  std::int64_t dim_ = 1;
  std::int64_t seed_ = 1;
  double drop_ = 0;
  bool plain_ = false;
  CLI::App* app_ = nullptr;
  std::string config_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_average_command() { return std::make_unique<AverageCommand>(); }

}  // namespace grapevine
