// The settings of a running job as texts.
#include "actors/run/control/live_settings.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace grapevine {
namespace live_settings_test {

TEST(LiveSettings, NumbersAreAsAJobFileHasThem) {
  for (const auto& [written, plain] :
       std::vector<std::pair<std::string, std::string>>{{"0.10", "0.1"},
                                                        {"1e-1", "0.1"},
                                                        {"0.1", "0.1"},
                                                        {".5", "0.5"},
                                                        {"007", "7"},
                                                        {"-0.50", "-0.5"},
                                                        {"1000000", "1000000"},
                                                        {"9007199254740993", "9007199254740993"},
                                                        {"ring", "ring"},
                                                        {"0.1x", "0.1x"},
                                                        {"inf", "inf"},
                                                        {"nan", "nan"},
                                                        {"1e999", "1e999"},
                                                        {"", ""},
                                                        {"true", "true"},
                                                        {"0x10", "0x10"}})
    EXPECT_EQ(with_plain_numbers({{"lr", written}}), LiveSettings({{"lr", plain}})) << written;
}

TEST(LiveSettings, OfThemSomeDecideTheWiring) {
  EXPECT_EQ(wiring_settings({{"lr", "0.1"}, {"algorithm", "sgp"}, {"wiring.peers", "2"}}),
            LiveSettings({{"algorithm", "sgp"}, {"wiring.peers", "2"}}));
  EXPECT_EQ(wiring_settings({{"lr", "0.1"}}), LiveSettings());
}

}  // namespace live_settings_test
}  // namespace grapevine
