#include "apps/trace/trace_csv.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/apps/trace/trace_folder.hpp"
#include "tests/read_file.hpp"

namespace grapevine {
namespace trace_csv_test {

using testing_apps::record_of;
using testing_apps::TestFolder;

TraceRecord message(EventKind kind, std::int64_t time_ns, Rank rank, Rank peer,
                    std::uint64_t sequence) {
  TraceRecord record = record_of(kind, time_ns, rank, 3);
  record.peer = peer;
  record.sequence = sequence;
  record.payload = PayloadKind::swap;
  record.bytes = kind == EventKind::sent ? 96 : 0;
  return record;
}

void add_all(TraceCsv& csv) {
  csv.add(message(EventKind::sent, 1000000000, 0, 1, 5));
  TraceRecord wait = record_of(EventKind::wait_begin, 1500000000, 1, 7);
  csv.add(wait);
  csv.add(message(EventKind::received, 2000000000, 1, 0, 5));
  wait.kind = EventKind::wait_end;
  wait.time_ns = 2000000001;
  wait.peer = 0;
  wait.sequence = 5;
  csv.add(wait);
  TraceRecord applied = record_of(EventKind::applied, 2000000002, 1, 7);
  applied.peer = applied.origin = 0;
  applied.origin_step = 3;
  applied.version = 2;
  applied.sequence = 5;
  applied.staleness = 4;
  applied.bytes = 64;
  csv.add(applied);
  applied.time_ns = 3;  // of no message, and one of a message that the trace lacks
  applied.peer = -1;
  csv.add(applied);
  applied.peer = 2;
  csv.add(applied);
  csv.add(record_of(EventKind::wait_begin, 10, 2, 0));
  csv.add(record_of(EventKind::wait_end, 15, 2, 0));
}

TEST(TraceCsv, HasARowForEach) {
  const TestFolder folder;
  auto csv = TraceCsv::create(folder.path("tables/new"), 3);
  ASSERT_TRUE(csv.ok()) << csv.error().message;
  add_all(*csv);
  ASSERT_TRUE(csv->commit().ok());
  EXPECT_EQ(read_file(folder.path("tables/new/applied.csv")),
            "time_s,rank,step,from,origin,origin_step,version,staleness,bytes,path,latency_s\n"
            "2.000000002,1,7,0,0,3,2,4,64,swap,1.000000000\n"
            "0.000000003,1,7,,0,3,2,4,64,collective,\n"
            "0.000000003,1,7,2,0,3,2,4,64,,\n");
  EXPECT_EQ(read_file(folder.path("tables/new/waits.csv")),
            "rank,step,begin_s,end_s,seconds,awaited,released_by,message\n"
            "1,7,1.500000000,2.000000001,0.500000001,,0,swap\n"
            "2,0,0.000000010,0.000000015,0.000000005,,,\n");
  const std::string edges = read_file(folder.path("tables/new/edges.csv"));
  EXPECT_EQ(edges.rfind("from,to,messages,bytes,mean_staleness,p50_latency_s,p99_latency_s\n"
                        "0,1,1,96,4,",
                        0),
            0U)
      << edges;
  EXPECT_NE(edges.find("\n2,1,0,0,4,,\n"), std::string::npos) << edges;
}

TEST(TraceCsv, TheTimeBetweenTwoRunsIsNoLatency) {
  const TestFolder folder;
  auto csv = TraceCsv::create(folder.path("tables"), 2);
  ASSERT_TRUE(csv.ok()) << csv.error().message;
  csv->add(message(EventKind::sent, 1000, 0, 1, 5));
  csv->add(record_of(EventKind::resumed, 2000000000, 1, 3));
  csv->add(message(EventKind::received, 2000000001, 1, 0, 5));
  TraceRecord applied = record_of(EventKind::applied, 2000000002, 1, 3);
  applied.peer = applied.origin = 0;
  applied.sequence = 5;
  csv->add(applied);
  ASSERT_TRUE(csv->commit().ok());
  const std::string rows = read_file(folder.path("tables/applied.csv"));
  EXPECT_NE(rows.find(",swap,\n"), std::string::npos) << rows;
}

TEST(TraceCsv, NothingIsThereBeforeTheEnd) {
  const TestFolder folder;
  {
    auto csv = TraceCsv::create(folder.path(), 3);
    ASSERT_TRUE(csv.ok());
    add_all(*csv);
    EXPECT_FALSE(std::filesystem::exists(folder.path("applied.csv")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "a failed verb leaves nothing";
}

TEST(TraceCsv, AFolderThatCannotBeIsAnError) {
  const TestFolder folder;
  std::ofstream(folder.path("file")) << "x";
  const auto csv = TraceCsv::create(folder.path("file"), 1);
  ASSERT_FALSE(csv.ok());
  EXPECT_EQ(csv.error().code, Errc::bad_input);
  EXPECT_NE(csv.error().message.find("file"), std::string::npos);
}

}  // namespace trace_csv_test
}  // namespace grapevine
