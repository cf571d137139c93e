#include "apps/console/text/figures.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

namespace grapevine {
namespace figures_test {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::StartsWith;

TEST(FormatTest, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.0 kB");
  EXPECT_EQ(format_bytes(1234567), "1.2 MB");
  EXPECT_EQ(format_bytes(12345678), "12.3 MB");
  EXPECT_EQ(format_bytes(123456789), "123 MB");
  EXPECT_EQ(format_bytes(999949), "1.0 MB");
  EXPECT_EQ(format_bytes(99949), "99.9 kB");
  EXPECT_EQ(format_bytes(99950), "100 kB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "18.4 EB");
}

TEST(FormatTest, Durations) {
  EXPECT_EQ(format_duration(nanoseconds(0)), "0s");
  EXPECT_EQ(format_duration(nanoseconds(17)), "17ns");
  EXPECT_EQ(format_duration(microseconds(12)), "12µs");
  EXPECT_EQ(format_duration(microseconds(999) + nanoseconds(900)), "1ms");
  EXPECT_EQ(format_duration(milliseconds(250)), "250ms");
  EXPECT_EQ(format_duration(milliseconds(4200)), "4.2s");
  EXPECT_EQ(format_duration(milliseconds(59940)), "59.9s");
  EXPECT_EQ(format_duration(milliseconds(59960)), "1m 00s");
  EXPECT_EQ(format_duration(seconds(63)), "1m 03s");
  EXPECT_EQ(format_duration(milliseconds(3599600)), "1h 00m");
  EXPECT_EQ(format_duration(hours(2) + minutes(5)), "2h 05m");
  EXPECT_EQ(format_duration(hours(76)), "3d 04h");
  EXPECT_EQ(format_duration(-seconds(63)), "-1m 03s");
  EXPECT_THAT(format_duration(Duration::min()), StartsWith("-106751d"));
  EXPECT_THAT(format_duration(Duration::max()), StartsWith("106751d"));
}

TEST(FormatTest, CountsAndRates) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(format_rate(0.4249), "0.42");
  EXPECT_EQ(format_rate(12.34), "12.3");
  EXPECT_EQ(format_rate(999.4), "999");
  EXPECT_EQ(format_rate(999.6), "1.0k");
  EXPECT_EQ(format_rate(1.25e6), "1.2M");
  EXPECT_EQ(format_rate(-1500), "-1.5k");
  EXPECT_EQ(format_rate(NAN), "-");
  EXPECT_EQ(format_number(0.98765, 3), "0.988");
  EXPECT_EQ(format_number(INFINITY, 3), "-");
  EXPECT_EQ(format_number(999999.5, 4), "999999.5000");
  EXPECT_EQ(format_number(1750308602467505143808.0, 4), "1.75e+21");
  EXPECT_EQ(format_number(-std::numeric_limits<double>::max(), 2), "-1.8e+308");
}

}  // namespace figures_test
}  // namespace grapevine
