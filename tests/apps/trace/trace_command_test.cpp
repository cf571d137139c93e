#include "apps/trace/trace_command.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <tuple>

#include <nlohmann/json.hpp>

#include "tests/apps/trace/trace_folder.hpp"
#include "tests/apps/verb_runner.hpp"
#include "tests/read_file.hpp"

namespace grapevine {
namespace trace_command_test {

using testing_apps::TestFolder;
using testing_apps::TraceFolder;

const testing_apps::VerbRunner kVerb(make_trace_command);

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Two ranks that exchange shares for three steps; a message a step arrives 40 us later and is
// applied in the next step.
void add_gossip(TraceFolder& folder) {
  std::uint64_t before[2] = {};
  for (Step step = 0; step < 3; ++step) {
    const std::int64_t at = 1000000 * step;
    std::uint64_t now[2] = {};
    for (const Rank rank : {0, 1}) {
      folder.add(EventKind::asked, at, rank, step);
      folder.add(EventKind::produced, at + 500000, rank, step).duration_ns = 500000;
      if (step > 0) {
        TraceRecord& applied = folder.add(EventKind::applied, at + 500001, rank, step);
        applied.peer = applied.origin = 1 - rank;
        applied.origin_step = applied.version = step - 1;
        applied.sequence = before[1 - rank];
        applied.staleness = 1;
        applied.bytes = 64;
      }
      folder.add(EventKind::committed, at + 500002, rank, step);
      folder.add(EventKind::step_done, at + 500002, rank, step);
    }
    for (const Rank rank : {0, 1})
      now[rank] = folder.message(rank, step, at + 510000, 1 - rank, step, at + 550000,
                                 PayloadKind::share, step, 100);
    std::copy(now, now + 2, before);
  }
}

TEST(TraceCommand, JsonHasTheContract) {
  TraceFolder folder(2);
  add_gossip(folder);
  folder.write();
  const std::string text = kVerb.output(folder.path() + " --json");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << "one object, one line";
  const auto object = nlohmann::json::parse(text);
  EXPECT_EQ(object["messages"], 6);
  EXPECT_EQ(object["bytes"], 600);
  EXPECT_EQ(object["applied"], 4);
  EXPECT_EQ(object["staleness"],
            nlohmann::json::parse(
                R"({"mean": 1.0, "p50": 1, "p99": 1, "max": 1, "histogram": {"1": 4}})"));
  EXPECT_EQ(object["contributions"],
            nlohmann::json::parse(
                R"({"produced": 6, "applied": 6, "pending": 0, "dropped": 0, "destroyed": 0})"));
  EXPECT_EQ(object["kinds"], nlohmann::json::parse(R"({"share": {"messages": 6, "bytes": 600}})"));
  ASSERT_EQ(object["edges"].size(), 2U);
  const auto edge = object["edges"][0];
  EXPECT_EQ(edge["from"], 0);
  EXPECT_EQ(edge["to"], 1);
  EXPECT_EQ(edge["messages"], 3);
  EXPECT_EQ(edge["bytes"], 300);
  EXPECT_EQ(edge["mean_staleness"], 1.0);
  EXPECT_NEAR(edge["p99_latency_s"].get<double>(), 40e-6, 40e-6 / 128);
  ASSERT_EQ(object["ranks"].size(), 2U);
  EXPECT_EQ(object["ranks"][1]["steps"], 3);
  EXPECT_EQ(object["ranks"][1]["staleness"]["histogram"]["1"], 2);
  EXPECT_EQ(object["missing"], nlohmann::json::array());
}

TEST(TraceCommand, FiguresThatWereNotMeasuredAreNull) {
  TraceFolder folder(2);
  TraceRecord& sent = folder.add(EventKind::sent, 0, 0, 0);
  sent.peer = 1;
  sent.sequence = 1;
  folder.write();
  const auto edge = nlohmann::json::parse(kVerb.output(folder.path() + " --json"))["edges"][0];
  EXPECT_TRUE(edge["mean_staleness"].is_null());
  EXPECT_TRUE(edge["p99_latency_s"].is_null());
}

TEST(TraceCommand, TakesTheFolderOfTheTraceToo) {
  TraceFolder folder(2);
  add_gossip(folder);
  folder.write();
  EXPECT_EQ(kVerb.output(folder.path("trace") + " --json"),
            kVerb.output(folder.path() + " --json"));
}

// A job that was killed, or still runs.
TEST(TraceCommand, WhatIsMissingIsANote) {
  TraceFolder folder(2);
  add_gossip(folder);
  folder.write(false);
  const auto people = kVerb.run(folder.path(), false);
  ASSERT_TRUE(people.result.ok());
  EXPECT_TRUE(has(people.out, "6 produced: 6 applied")) << people.out;
  EXPECT_EQ(people.err.rfind("note: process 0 has not closed its trace", 0), 0U) << people.err;
  const auto json = nlohmann::json::parse(kVerb.output(folder.path() + " --json"));
  ASSERT_EQ(json["missing"].size(), 1U);
  EXPECT_TRUE(has(json["missing"][0], "has not closed its trace"));
}

TEST(TraceCommand, ErrorsGiveTheFolder) {
  const TestFolder empty;
  EXPECT_TRUE(has(kVerb.error(empty.path()), empty.path() + ": no trace there"));
  EXPECT_TRUE(has(kVerb.error(empty.path("absent")), empty.path("absent")));
  std::ofstream(empty.path("process-0000.gvtrace")) << "no trace";
  EXPECT_TRUE(has(kVerb.error(empty.path()), "process-0000.gvtrace"));
}

TEST(TraceCommand, FilesOfTheRunStay) {
  TraceFolder folder(2);
  add_gossip(folder);
  folder.write();
  const std::string summary = folder.path("summary.json");
  std::ofstream(summary) << "{}";
  std::filesystem::create_symlink(summary, folder.path("other.json"));
  for (const std::string& run : {folder.path(), folder.path("trace")})
    for (const std::string& name : {summary, folder.path("other.json")})
      EXPECT_TRUE(has(kVerb.error(run + " --perfetto " + name), "is a file of the run")) << name;
  EXPECT_EQ(std::filesystem::file_size(summary), 2U);
}

// What this verb has written is replaced, and nothing else.
TEST(TraceCommand, FilesOfOthersStay) {
  TraceFolder folder(2);
  add_gossip(folder);
  folder.write();
  for (const auto& [option, path, own] :
       {std::tuple{"--html", "notes.html", "notes.html"},
        std::tuple{"--perfetto", "data.json", "data.json"},
        std::tuple{"--perfetto", "other.pftrace", "other.pftrace"},
        std::tuple{"--csv", "tables", "tables/applied.csv"},
        std::tuple{"--csv", "tables", "tables/waits.csv"},
        std::tuple{"--csv", "tables", "tables/edges.csv"}}) {
    SCOPED_TRACE(own);
    const std::string file = folder.path(own), line = std::string(" ") + option + " ";
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    for (const std::string notes : {"my notes\n", "<!doctype html>\n<p>mine", "{\"a\": 1}"}) {
      std::ofstream(file) << notes;
      const std::string message = kVerb.error(folder.path() + line + folder.path(path));
      EXPECT_TRUE(has(message, "is there, and not from grapevine trace")) << message;
      EXPECT_TRUE(has(message, own)) << message;
      EXPECT_EQ(read_file(file), notes);
    }
    // An empty file has nothing to lose, and then it is our own.
    std::ofstream(file, std::ios::trunc).flush();
    for (int i = 0; i < 2; ++i) kVerb.output(folder.path() + line + folder.path(path));
    EXPECT_GT(std::filesystem::file_size(file), 20U);
  }
}

TEST(TraceCommand, AHeaderCannotControlTheTerminal) {
  TraceFolder folder(2);
  add_gossip(folder);
  TraceHeader header = folder.header();
  header.wiring["exchange"] = "\x1b[31mred\a\n";
  TraceFileWriter writer(folder.path("trace"), header, 0);
  std::string frames;
  for (const auto& [rank, records] : folder.records()) append_records(frames, records);
  ASSERT_TRUE(writer.write(frames).ok());
  ASSERT_TRUE(writer.close().ok());
  const std::string text = kVerb.output(folder.path());
  EXPECT_EQ(text.find_first_of("\x1b\a"), std::string::npos) << text;
  EXPECT_TRUE(has(text.substr(0, text.find('\n')), "2 workers")) << text;
}

// The run's other files are beside the folder of its trace.
TEST(TraceCommand, ThePageOfTheFolderOfTheTraceHasTheFactsOfTheRun) {
  TraceFolder folder(2);
  add_gossip(folder);
  folder.write();
  std::ofstream(folder.path("summary.json")) << R"({"algorithm": "of-the-summary"})";
  std::ofstream(folder.path("metrics.csv"))
      << "rank,epoch,step,time_s,batch_time_s,exchange_time_s,data_time_s,loss,top1,top5,lr,"
         "staleness,val_loss,val_top1,val_top5\n0,0,0,0.5,0.1,0,0,2.5,0.5,1,0.1,0,,,\n";
  const auto page = [&folder](const std::string& run) {
    kVerb.output(run + " --html " + folder.path("page.html"));
    return read_file(folder.path("page.html"));
  };
  const std::string of_run = page(folder.path());
  EXPECT_TRUE(has(of_run, "of-the-summary"));
  for (const std::string& trace : {folder.path("trace"), folder.path("trace/")})
    EXPECT_EQ(page(trace), of_run) << trace;
}

// The value is optional, and the run may stand where it would be.
TEST(TraceCommand, BlameAloneAsksForAllCulprits) {
  TraceFolder folder(2);
  add_gossip(folder);
  folder.write();
  const std::string all = kVerb.output(folder.path() + " --blame all --json");
  EXPECT_TRUE(has(all, "culprits")) << all;
  for (const std::string& arguments :
       {folder.path() + " --blame --json", folder.path() + " --json --blame",
        "--blame " + folder.path() + " --json", "--json --blame " + folder.path(),
        "--blame all " + folder.path() + " --json"})
    EXPECT_EQ(kVerb.output(arguments), all) << arguments;
  EXPECT_TRUE(has(kVerb.output(folder.path() + " --blame slowest --json"), "steps"));
  EXPECT_TRUE(has(kVerb.error(folder.path() + " --blame every"), "--blame every: expected"));
  EXPECT_TRUE(has(kVerb.error("--blame --json"), "run is missing (folder of a run"));
  EXPECT_TRUE(has(kVerb.error("--blame all"), "run is missing"));
  EXPECT_TRUE(has(kVerb.error("--json"), "run is missing"));
  EXPECT_TRUE(has(kVerb.error(folder.path("nowhere")), "give the folder of a run"));
}

TEST(TraceCommand, OfAResumedRunThePausesStandApart) {
  TraceFolder folder(1);
  constexpr std::int64_t kSecond = 1'000'000'000;
  folder.add(EventKind::asked, 0, 0, 0);  // times count from here
  folder.add(EventKind::step_done, 2 * kSecond, 0, 0);
  folder.add(EventKind::resumed, 3602 * kSecond, 0, 1);
  folder.add(EventKind::step_done, 3605 * kSecond, 0, 1);
  folder.write();
  const std::string text = kVerb.output(folder.path());
  EXPECT_TRUE(has(text, "5.0s of training, resumed after pauses of 1h 00m in all\n")) << text;
  const auto figures = nlohmann::json::parse(kVerb.output(folder.path() + " --json"));
  EXPECT_EQ(figures["seconds"], 5);
  EXPECT_EQ(figures["paused_seconds"], 3600);
}

// Missing folders are made, as for --csv; what cannot be is bad input for all of them.
TEST(TraceCommand, OutputFilesAreTreatedAlike) {
  TraceFolder folder(2);
  add_gossip(folder);
  folder.write();
  const std::string file = folder.path("a-file");
  std::ofstream(file) << "x";
  for (const auto& [option, ending] : {std::pair<std::string, std::string>{"--html", ".html"},
                                       {"--perfetto", ".pftrace"},
                                       {"--perfetto", ".json"}}) {
    const std::string written = folder.path("new/folder/x") + ending;
    EXPECT_TRUE(has(kVerb.output(folder.path() + " " + option + " " + written), written));
    EXPECT_TRUE(std::filesystem::exists(written)) << written;
    const auto refused =
        kVerb.run(folder.path() + " " + option + " " + file + "/x" + ending, false).result;
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::bad_input) << option;
  }
  EXPECT_TRUE(has(kVerb.error(folder.path() + " --html x.png"), "must end in .html"));
  EXPECT_TRUE(has(kVerb.error(folder.path() + " --at-least 1"), "--blame"));
  EXPECT_TRUE(has(kVerb.error(folder.path() + " --blame 3"), "its last one is 2"));
}

}  // namespace trace_command_test
}  // namespace grapevine
