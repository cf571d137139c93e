#include "apps/trace/trace_command.hpp"

#include <unistd.h>

#include <ostream>
#include <string>

#include "apps/console/console.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/trace/figures_report.hpp"
#include "apps/trace/provenance/provenance_report.hpp"
#include "apps/trace/trace_csv.hpp"
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
    add_option(app, "csv", csv_, "write tables of updates, waits and edges to this folder");
    add_option(app, "why", why_, "RANK:STEP: the updates that were applied there, and their paths");
    add_option(app, "config", config_, "TOML file with options");
    app_ = &app;
  }
  bool computes() const override { return false; }

  Expected<void> run(Console& console) override {
    if (auto read = read_config_file(*app_, config_); !read) return read;
    if (!why_.empty())
      if (auto step = parse_step_name(why_); !step) return step.error();
    auto trace = MergedTrace::open(run_);
    if (!trace) return trace.error();
    const auto answered = answer(*trace, console);
    if (answered && !json_)
      for (const std::string& missing : trace->missing())
        console.err << "note: " << missing << '\n';
    return answered;
  }

 private:
  // Files first, then one answer.
  Expected<void> answer(MergedTrace& trace, Console& console) const {
    if (auto written = write_files(trace, console); !written) return written;
    if (!why_.empty()) return explain(trace, console);
    const bool files_only = !csv_.empty() && !json_;
    return files_only ? Expected<void>{} : show_figures(trace, console);
  }

  Expected<void> write_files(MergedTrace& trace, Console& console) const {
    if (!csv_.empty())
      if (auto written = write_csv(trace, console); !written) return written;
    return {};
  }

  Expected<void> write_csv(MergedTrace& trace, Console& console) const {
    auto csv = TraceCsv::create(csv_, trace.ranks());
    if (!csv) return csv.error();
    read_records(trace, console, [&](const TraceRecord& record) { csv->add(record); });
    return csv->commit();
  }

  Expected<void> explain(MergedTrace& trace, Console& console) const {
    const auto step = parse_step_name(why_);
    if (!step) return step.error();
    const auto provenance =
        find_provenance(*step, trace.workers(), trace.ranks(),
                        [&](const auto& take) { read_records(trace, console, take); });
    if (!provenance) return provenance.error();
    if (json_)
      print_object(provenance_json(*provenance, trace.missing()), console.out);
    else
      print_provenance(*provenance, trace.workers(), detect_terminal(STDOUT_FILENO), console.out);
    return {};
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
  std::string csv_, why_;
  std::string config_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_trace_command() { return std::make_unique<TraceCommand>(); }

}  // namespace grapevine
