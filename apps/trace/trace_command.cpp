#include "apps/trace/trace_command.hpp"

#include <unistd.h>

#include <ostream>
#include <string>

#include "apps/console/console.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/trace/figures_report.hpp"
#include "apps/trace/trace_figures.hpp"
#include "apps/trace/trace_scan.hpp"
#include "messages/trace/merged_trace.hpp"

namespace grapevine {
namespace {

class TraceCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("run", run_, "folder of a run, or of its trace files")->required();
    add_switch(app, "json", json_, "print one JSON object");
    add_option(app, "config", config_, "TOML file with options");
    app_ = &app;
  }
  bool computes() const override { return false; }

  Expected<void> run(Console& console) override {
    if (auto read = read_config_file(*app_, config_); !read) return read;
    auto trace = MergedTrace::open(run_);
    if (!trace) return trace.error();
    const auto answered = answer(*trace, console);
    if (answered && !json_)
      for (const std::string& missing : trace->missing())
        console.err << "note: " << missing << '\n';
    return answered;
  }

 private:
  // Files first; then one answer is printed.
  Expected<void> answer(MergedTrace& trace, Console& console) const {
    return show_figures(trace, console);
  }

  Expected<void> show_figures(MergedTrace& trace, Console& console) const {
    TraceFigures figures(trace.ranks());
    read_records(trace, console, [&](const TraceRecord& record) { figures.add(record); });
    if (json_)
      print_object(figures_json(trace, figures), console.out);
    else
      print_figures(trace, figures, detect_terminal(STDOUT_FILENO), console.out);
    return {};
  }

  // Names of files need not be UTF-8.
  static void print_object(const nlohmann::ordered_json& object, std::ostream& out) {
    out << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }

  std::string run_;
  CLI::App* app_ = nullptr;
  std::string config_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_trace_command() { return std::make_unique<TraceCommand>(); }

}  // namespace grapevine
