#include "apps/average/average_command.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include <nlohmann/json.hpp>

#include "algorithms/graphs/averaging.hpp"
#include "algorithms/graphs/topology.hpp"
#include "apps/console/verb_options.hpp"

namespace grapevine {
namespace {

// Values of all ranks together; each is held several times over.
constexpr std::int64_t kMaxValues = std::int64_t{1} << 26;

constexpr std::int64_t kMaxRounds = 10'000'000;

void print_json(const AveragingReport& report, std::ostream& out) {
  nlohmann::ordered_json object;
  object["round"] = report.round;
  object["mean"] = report.mean;
  object["max_deviation"] = report.max_deviation;
  object["weight_sum"] = report.weight_sum;
  out << object.dump() << '\n';
}

// Two characters for each decade of the deviation above double precision, relative to the first
// one.
std::string log_bar(double deviation, double initial) {
  constexpr double kDecades = 16;
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
    add_option(app, "topology", topology_, "graph (see grapevine topology --help)");
    add_option(app, "ranks", ranks_, "number of ranks");
    add_option(app, "peers", peers_, "destinations of a rank in a round");
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
    const Expected<void> checked = check();
    if (!checked) return checked;
    const auto topology = make_topology(topology_, ranks_, peers_);
    if (!topology) return topology.error();
    const auto method = parse_averaging_method(method_);
    if (!method) return method.error();
    if (plain_ && *method != AveragingMethod::push_sum) {
      return bad_input("--plain: " + method_ + " has no running sums to switch off: leave it out");
    }
    std::vector<std::vector<double>> values;
    for (Rank i = 0; i < ranks_; ++i) values.emplace_back(static_cast<std::size_t>(dim_), i);
    const auto start = [&](bool running_sums) {
      return AveragingRun::start(*topology, values,
                                 {*method, running_sums, drop_, static_cast<std::uint64_t>(seed_)});
    };
    auto averaging = start(!plain_);
    if (!averaging) return averaging.error();
    // Shows the purpose of the running sums; the same seed loses the same messages.
    const bool compare = !json_ && !plain_ && drop_ > 0 && *method == AveragingMethod::push_sum;
    if (!compare) {
      print(*averaging, console.out);
      return {};
    }
    auto plain = start(false);
    if (!plain) return plain.error();
    print_both(*averaging, *plain, console.out);
    return {};
  }

 private:
  // Checks beyond the parts.
  Expected<void> check() const {
    if (rounds_ < 0 || rounds_ > kMaxRounds)
      return bad_input("--rounds " + std::to_string(rounds_) + ": use 0.." +
                       std::to_string(kMaxRounds));
    if (dim_ < 1) return bad_input("--dim " + std::to_string(dim_) + ": use 1 or more");
    // Read as a signed number: the parser wraps -1 around for unsigned ones.
    if (seed_ < 0) return bad_input("--seed " + std::to_string(seed_) + ": use 0 or more");
    if (ranks_ > 0 && dim_ > kMaxValues / ranks_) {
      return bad_input("--ranks " + std::to_string(ranks_) + " --dim " + std::to_string(dim_) +
                       ": use at most " + std::to_string(kMaxValues) + " values in all");
    }
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
        << "round    robust mean  max deviation     plain mean  max deviation    weight sum\n";
    for (std::int64_t round = 0; round <= rounds_; ++round) {
      if (round > 0) {
        robust.advance();
        plain.advance();
      }
      const AveragingReport a = robust.report();
      const AveragingReport b = plain.report();
      char line[160];
      std::snprintf(line, sizeof line, "%5lld  %13.6g  %13.3e  %13.6g  %13.3e  %12.6g\n",
                    static_cast<long long>(round), a.mean, a.max_deviation, b.mean, b.max_deviation,
                    b.weight_sum);
      out << line;
    }
  }

  std::string method_ = "push-sum";
  std::string topology_ = "exponential";
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
