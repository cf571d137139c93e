#include "apps/simulate/advise_command.hpp"

#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include "apps/console/json_text.hpp"
#include "apps/console/text/figures.hpp"
#include "apps/console/text/table.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/simulate/advise_search.hpp"
#include "net/sim/network_model.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

class AdviseCommand : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("run", run_, "a run's folder, with its trace")->required();
    add_option(app, "workers", workers_, "ranks that train; 0: as many as in the run")
        ->default_str("0");
    add_option(app, "network", network_, "in the place of the measured one: see simulate --help");
    add_option(app, "steps", steps_, "simulated steps of each wiring");
    add_option(app, "top", top_, "wirings to print");
    add_switch(app, "json", json_, "print one JSON object, with all wirings");
  }

  Expected<void> run(Console& console) override {
    if (steps_ < 2 || steps_ > 1'000'000)
      return bad_input("--steps " + std::to_string(steps_) + ": expected 2..1000000");
    if (workers_ < 0)
      return bad_input("--workers " + std::to_string(workers_) +
                       ": expected 1 or more, or 0 for as many as in the run");
    if (top_ < 1) return bad_input("--top " + std::to_string(top_) + ": expected at least 1");
    if (auto network = parse_network(network_); !network) return network.error();
    auto profile = read_profile(run_, console);
    if (!profile) return profile.error();
    SimOptions options;
    options.profile = std::make_shared<const RunProfile>(*std::move(profile));
    options.maths = "none";
    options.parameters = options.profile->parameters;
    options.train.workers = workers_ > 0 ? workers_ : options.profile->workers;
    options.train.steps = steps_;
    options.train.batch_size = options.profile->batch_size;
    options.train.log_every = steps_;
    options.own_network = !network_.empty();
    if (options.own_network) options.network = network_;
    const Advices advices = search_wirings(options, [&](std::size_t done, std::size_t all) {
      if (console.terminal)
        console.err << "\rsimulating wiring " << done + 1 << " of " << all << "  " << std::flush;
    });
    if (console.terminal) console.err << "\r\033[K" << std::flush;
    if (advices.ranked.empty())
      return bad_input(run_ + ": no wiring fits: " + advices.unfit.front().second);
    const std::vector<std::string> assumptions = assumptions_of(options);
    json_ ? print_json(options, advices, assumptions, console)
          : print(advices, assumptions, console);
    return {};
  }

 private:
  std::vector<std::string> assumptions_of(const SimOptions& options) const {
    const RunProfile& p = *options.profile;
    std::vector<std::string> lines;
    lines.push_back(std::to_string(options.train.workers) +
                    " workers, with the NICs and the gradient times of the run: mean " +
                    format_duration(from_seconds(p.mean_gradient())) + ", and " +
                    format_duration(from_seconds(p.overhead)) + " for the rest of a step");
    const NetworkModel measured = p.network();
    if (options.own_network)
      lines.push_back("network " + options.network + ", as given");
    else
      lines.push_back("network measured from " + format_count(p.links.messages) +
                      " messages: alpha " + format_duration(from_seconds(measured.link.alpha)) +
                      ", " +
                      (measured.link.beta > 0
                           ? format_bytes(static_cast<std::uint64_t>(1 / measured.link.beta)) + "/s"
                           : std::string("no limit of bandwidth")) +
                      ", jitter " + format_duration(from_seconds(measured.jitter)) +
                      (p.network_note().empty() ? "" : "; " + p.network_note()));
    lines.push_back(
        format_count(options.parameters) + " parameters, batch " +
        std::to_string(options.train.batch_size) + ", " + std::to_string(steps_) +
        " simulated steps of each wiring, and more where local_steps does not divide them");
    lines.emplace_back(
        "the time of a step says nothing of its worth: staleness and compression "
        "change how many steps a loss takes");
    return lines;
  }

  void print(const Advices& advices, const std::vector<std::string>& assumptions,
             Console& console) const {
    Table table({"wiring", "step", "bytes per step", "staleness mean", "max"});
    const auto count = std::min(advices.ranked.size(), static_cast<std::size_t>(top_));
    for (std::size_t i = 0; i < count; ++i) {
      const Advice& advice = advices.ranked[i];
      table.add_row({advice.command, format_duration(from_seconds(advice.step_seconds)),
                     format_bytes(static_cast<std::uint64_t>(advice.bytes_per_step)),
                     format_number(advice.staleness_mean, 2),
                     std::to_string(advice.staleness_max)});
    }
    console.out << table << "of " << advices.ranked.size() << " wirings that fit; "
                << advices.unfit.size() << " do not fit\nassumed:\n";
    for (const std::string& line : assumptions) console.out << "  " << line << "\n";
    console.out << std::flush;
  }

  void print_json(const SimOptions& options, const Advices& advices,
                  const std::vector<std::string>& assumptions, Console& console) const {
    ordered_json all = {{"run", run_},
                        {"workers", options.train.workers},
                        {"parameters", options.parameters},
                        {"gradient_seconds", options.profile->mean_gradient()},
                        {"overhead_seconds", options.profile->overhead},
                        {"measured_step_seconds", options.profile->step_seconds},
                        {"network", options.own_network ? options.network
                                                        : network_text(options.profile->network())},
                        {"wirings", ordered_json::array()},
                        {"unfit", ordered_json::array()},
                        {"assumptions", assumptions}};
    for (const Advice& advice : advices.ranked)
      all["wirings"].push_back({{"algorithm", advice.algorithm},
                                {"set", advice.set},
                                {"step_seconds", advice.step_seconds},
                                {"bytes_per_step", advice.bytes_per_step},
                                {"staleness_mean", advice.staleness_mean},
                                {"staleness_max", advice.staleness_max}});
    for (const auto& [wiring, why] : advices.unfit)
      all["unfit"].push_back({{"wiring", wiring}, {"why", why}});
    console.out << json_text(all, -1) << std::endl;
  }

  std::string run_;
  std::int64_t workers_ = 0;
  std::string network_;
  std::int64_t steps_ = 40;
  std::int64_t top_ = 3;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_advise_command() { return std::make_unique<AdviseCommand>(); }

}  // namespace grapevine
