#include "apps/trace/trace_command.hpp"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/console/json_text.hpp"
#include "apps/console/text/terminal.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/trace/blame_report.hpp"
#include "apps/trace/figures_report.hpp"
#include "apps/trace/output_file.hpp"
#include "apps/trace/perfetto/perfetto_export.hpp"
#include "apps/trace/provenance/provenance_report.hpp"
#include "apps/trace/report/report_page.hpp"
#include "apps/trace/report/run_facts.hpp"
#include "apps/trace/trace_csv.hpp"
#include "apps/trace/trace_figures.hpp"
#include "apps/trace/trace_scan.hpp"
#include "messages/text/parse_number.hpp"
#include "messages/time.hpp"
#include "messages/trace/merged_trace.hpp"

namespace grapevine {
namespace {

constexpr char kRunHelp[] = "folder of a run, or of its trace files";
constexpr char kAll[] = "all";

// "all", "slowest" or a step.
Expected<BlameQuestion> parse_blame(const std::string& text, double at_least_s) {
  BlameQuestion question;
  if (!std::isfinite(at_least_s) || at_least_s < 0 || at_least_s > 1e6)
    return bad_input(fmt::format("--at-least {}: expected seconds, 0 to 1000000", at_least_s));
  question.least_ns = from_seconds(at_least_s).count();
  if (text == kAll) return question;
  question.about = BlameQuestion::About::slowest;
  if (text == "slowest") return question;
  question.about = BlameQuestion::About::step;
  question.step = number_in<Step>(text).value_or(-1);
  if (question.step < 0)
    return bad_input("--blame " + text + ": expected all, slowest or the number of a step");
  return question;
}

class TraceCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    // Not as required: "--blame RUN" takes the run for its value, which settle_blame() puts right.
    app.add_option("run", run_, kRunHelp);
    add_switch(app, "json", json_, "print one JSON object");
    add_option(app, "csv", csv_, "write tables of updates, waits and edges to this folder");
    add_option(app, "why", why_, "RANK:STEP: the updates that were applied there, and their paths");
    declare_blame(app);
    add_option(app, "at-least", at_least_s_,
               "with --blame or --html: seconds; shorter stalls are left out");
    add_option(app, "perfetto", perfetto_,
               "write a timeline: FILE.pftrace for Perfetto, or FILE.json for Chrome");
    add_option(app, "html", html_, "write the run as one page to this file");
    add_option(app, "config", config_, "TOML file with options");
    app_ = &app;
  }
  bool computes() const override { return false; }

  Expected<void> run(Console& console) override {
    settle_blame();
    if (auto read = read_config_file(*app_, config_); !read) return read;
    if (auto checked = check_options(); !checked) return checked;
    auto trace = MergedTrace::open(run_);
    if (!trace) return trace.error();
    if (auto prepared = prepare_files(); !prepared) return prepared;
    const auto answered = answer(*trace, console);
    if (answered && !json_)
      for (const std::string& missing : trace->missing())
        console.err << "note: " << missing << '\n';
    return answered;
  }

 private:
  // Without a value: all.
  void declare_blame(CLI::App& app) {
    app.add_option("--blame", blame_,
                   "what made ranks wait, back to its cause: all (also without a value), slowest "
                   "or STEP")
        ->envname(environment_name("blame"))
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->expected(0, 1)
        ->default_str("");
  }

  void settle_blame() {
    const CLI::Option& given = *app_->get_option("--blame");
    if (given.count() == 0) return;
    if (blame_.empty()) blame_ = kAll;
    const bool is_run =
        app_->count("run") == 0 && !from_environment(given) && !parse_blame(blame_, at_least_s_);
    if (is_run) run_ = std::exchange(blame_, kAll);
  }

  Expected<void> check_options() const {
    if (run_.empty() && app_->count("run") > 0)
      return bad_input("trace '': give the folder of a run");
    if (run_.empty())
      return bad_input(fmt::format("run is missing ({}): see 'grapevine trace --help'", kRunHelp));
    if (!why_.empty())
      if (auto step = parse_step_name(why_); !step) return step.error();
    if (!blame_.empty())
      if (auto question = parse_blame(blame_, at_least_s_); !question) return question.error();
    if (!why_.empty() && !blame_.empty())
      return bad_input("--why and --blame: one question at a time, give one of them");
    if (!perfetto_.empty())
      if (auto path = check_perfetto_path(perfetto_); !path) return path;
    if (!html_.empty())
      if (auto path = check_page_path(html_); !path) return path;
    if (blame_.empty() && html_.empty() && app_->count("--at-least") > 0)
      return bad_input("--at-least is for --blame and --html: give one of them too");
    return {};
  }

  Expected<void> prepare_files() const {
    std::vector<std::pair<std::string, std::string>> files = {{"--perfetto", perfetto_},
                                                              {"--html", html_}};
    if (!csv_.empty())
      for (const char* name : {"applied.csv", "waits.csv", "edges.csv"})
        files.emplace_back("--csv", (std::filesystem::path(csv_) / name).string());
    for (const auto& [option, path] : files)
      if (!path.empty())
        if (auto prepared = prepare_output_file(option, path, run_); !prepared) return prepared;
    return {};
  }

  // Files first, then one answer.
  Expected<void> answer(MergedTrace& trace, Console& console) const {
    if (auto written = write_files(trace, console); !written) return written;
    if (!why_.empty()) return explain(trace, console);
    if (!blame_.empty()) return blame_ranks(trace, console);
    const bool files_only = !(csv_ + perfetto_ + html_).empty() && !json_;
    return files_only ? Expected<void>{} : show_figures(trace, console);
  }

  Expected<void> write_files(MergedTrace& trace, Console& console) const {
    if (!csv_.empty()) {
      if (auto written = write_csv(trace, console); !written) return written;
      if (!json_) console.out << "wrote the tables in " << csv_ << '\n';
    }
    if (!perfetto_.empty()) {
      if (auto written = export_perfetto(trace, perfetto_); !written) return written;
      if (!json_) console.out << "wrote the timeline " << perfetto_ << '\n';
    }
    if (!html_.empty()) {
      if (auto written = write_page(trace, console); !written) return written;
      if (!json_) console.out << "wrote the page " << html_ << '\n';
    }
    return {};
  }

  Expected<void> write_csv(MergedTrace& trace, Console& console) const {
    auto csv = TraceCsv::create(csv_, trace.ranks());
    if (!csv) return csv.error();
    read_records(trace, console, [&](const TraceRecord& record) { csv->add(record); });
    return csv->commit();
  }

  Expected<void> write_page(MergedTrace& trace, Console& console) const {
    TraceFigures figures(trace.ranks());
    ReportCollector collector(trace.ranks());
    read_records(trace, console, [&](const TraceRecord& record) {
      figures.add(record);
      collector.add(record);
    });
    collector.finish();
    ReportInputs inputs;
    inputs.run = folder_of_run(run_);
    inputs.collector = &collector;
    inputs.workers = trace.workers();
    inputs.servers = trace.servers();
    inputs.processes = trace.processes();
    inputs.figures = figures_json(trace, figures);
    BlameQuestion question = *parse_blame(kAll, at_least_s_);
    inputs.culprits = json_of(blame(trace, question))["culprits"];
    question.about = BlameQuestion::About::slowest;
    for (const BlamedStep& step : blame(trace, question).steps)
      inputs.chains.push_back(sentence_of(step));
    return write_report(html_, inputs);
  }

  Expected<void> blame_ranks(MergedTrace& trace, Console& console) const {
    const auto question = parse_blame(blame_, at_least_s_);
    if (!question) return question.error();
    const BlameReport report = blame(trace, *question);
    if (question->about == BlameQuestion::About::step && report.steps.empty())
      return bad_input(
          fmt::format("--blame {}: no rank has taken that step in this trace: {}", blame_,
                      report.last_step < 0 ? "it has no step"
                                           : fmt::format("its last one is {}", report.last_step)));
    if (json_)
      console.out << json_text(json_of(report)) << '\n';
    else
      console.out << text_of(report);
    return {};
  }

  Expected<void> explain(MergedTrace& trace, Console& console) const {
    const auto step = parse_step_name(why_);
    if (!step) return step.error();
    const auto provenance =
        find_provenance(*step, trace.workers(), trace.ranks(),
                        [&](const auto& take) { read_records(trace, console, take); });
    if (!provenance) return provenance.error();
    if (json_)
      console.out << json_text(provenance_json(*provenance, trace.missing())) << '\n';
    else
      print_provenance(*provenance, trace.workers(), detect_terminal(STDOUT_FILENO), console.out);
    return {};
  }

  Expected<void> show_figures(MergedTrace& trace, Console& console) const {
    TraceFigures figures(trace.ranks());
    read_records(trace, console, [&](const TraceRecord& record) { figures.add(record); });
    if (json_)
      console.out << json_text(figures_json(trace, figures)) << '\n';
    else
      print_figures(trace, figures, detect_terminal(STDOUT_FILENO), console.out);
    return {};
  }

  std::string run_;
  CLI::App* app_ = nullptr;
  std::string csv_, why_, blame_, perfetto_, html_;
  double at_least_s_ = 0.05;
  std::string config_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_trace_command() { return std::make_unique<TraceCommand>(); }

}  // namespace grapevine
