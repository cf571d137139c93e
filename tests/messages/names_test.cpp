#include "messages/text/names.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "messages/random.hpp"

namespace grapevine {
namespace names_test {

const std::vector<std::string> kValid = {"exponential", "ring", "complete"};

TEST(UnknownName, SuggestsTheNearest) {
  const Error error = unknown_name("topology", "expnential", kValid);
  EXPECT_EQ(error.code, Errc::bad_input);
  EXPECT_EQ(error.message,
            "unknown topology 'expnential': did you mean 'exponential'? "
            "valid: exponential, ring, complete");
}

TEST(UnknownName, ALongListIsLeftOutBesideAGuess) {
  std::vector<std::string> many = kValid;
  for (int i = 0; i < 30; ++i) many.push_back("name" + std::to_string(i));
  EXPECT_EQ(unknown_name("topology", "expnential", many).message,
            "unknown topology 'expnential': did you mean 'exponential'?");
  EXPECT_NE(unknown_name("topology", "hypercube", many).message.find("name29"), std::string::npos);
}

TEST(UnknownName, KeepsQuietWhereNothingIsNear) {
  EXPECT_EQ(unknown_name("topology", "hypercube", kValid).message,
            "unknown topology 'hypercube': valid: exponential, ring, complete");
  EXPECT_EQ(unknown_name("topology", "", kValid).message,
            "unknown topology '': valid: exponential, ring, complete");
  EXPECT_EQ(unknown_name("topology", "ring", {}).message, "unknown topology 'ring': valid: ");
}

// What two names share by their group says nothing.
TEST(UnknownName, GuessesByWhatStandsBehindTheGroup) {
  const std::vector<std::string> valid = {"wiring.qsr", "wiring.peers", "lr"};
  EXPECT_EQ(unknown_name("setting", "wiring.foo", valid).message,
            "unknown setting 'wiring.foo': valid: wiring.qsr, wiring.peers, lr");
  EXPECT_NE(unknown_name("setting", "wiring.pers", valid).message.find("'wiring.peers'?"),
            std::string::npos);
  EXPECT_NE(unknown_name("setting", "wirin.peers", valid).message.find("'wiring.peers'?"),
            std::string::npos);
}

// The beginning of a name is that name, whatever else is few letters away.
TEST(UnknownName, TakesTheBeginningOfAName) {
  const std::vector<std::string> valid = {"--lr", "--algorithm", "--lr-schedule", "--log-every"};
  const auto guess = [&](const std::string& name) {
    return unknown_name("option", name, valid).message;
  };
  EXPECT_NE(guess("--alg").find("did you mean '--algorithm'?"), std::string::npos);
  EXPECT_NE(guess("--log").find("did you mean '--log-every'?"), std::string::npos);
  EXPECT_NE(guess("--lr-").find("did you mean '--lr-schedule'?"), std::string::npos);
}

// Another first letter makes another word of a short name.
TEST(UnknownName, DoesNotGuessAcrossTheFirstLetterOfAShortName) {
  const std::vector<std::string> valid = {"cpu", "cuda", "auto"};
  EXPECT_EQ(unknown_name("device", "tpu", valid).message,
            "unknown device 'tpu': valid: cpu, cuda, auto");
  EXPECT_NE(unknown_name("device", "cpi", valid).message.find("'cpu'?"), std::string::npos);
}

TEST(UnknownName, OneTypoAlwaysFindsTheName) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const std::string& meant = kValid[rng() % kValid.size()];
    std::string typed = meant;
    const std::size_t at = rng() % typed.size();
    switch (rng() % 3) {
      case 0:
        typed[at] = '#';
        break;
      case 1:
        typed.erase(at, 1);
        break;
      default:
        typed.insert(at, "#");
    }
    EXPECT_NE(unknown_name("topology", typed, kValid).message.find("'" + meant + "'?"),
              std::string::npos)
        << typed;
  }
}

// One slip behind the first letter.
void slip(std::string& typed, Rng& rng) {
  const std::size_t at = 1 + rng() % (typed.size() - 2);
  switch (rng() % 4) {
    case 0:
      typed[at] = static_cast<char>('a' + rng() % 26);
      break;
    case 1:
      typed.erase(at, 1);
      break;
    case 2:
      typed.insert(at, 1, static_cast<char>('a' + rng() % 26));
      break;
    default:
      std::swap(typed[at], typed[at + 1]);
  }
}

TEST(UnknownName, SlipsInAThirdOfTheLettersFindTheName) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    std::string meant;
    for (std::size_t i = 8 + rng() % 20; i > 0; --i)
      meant += static_cast<char>('a' + rng() % (1 + seed % 26));
    std::string typed = meant;
    for (std::size_t slips = meant.size() / 3; slips > 0; --slips) slip(typed, rng);
    if (meant.size() / 3 > typed.size() / 2) continue;  // most were letters too few
    const std::vector<std::string> valid = {"ABCDEFGHIJ", meant, "KLMNOPQRSTUVW"};
    EXPECT_NE(unknown_name("key", typed, valid).message.find("'" + meant + "'?"), std::string::npos)
        << typed;
  }
}

TEST(UnknownName, IsOneLine) {
  EXPECT_EQ(unknown_name("model", "x", kValid).message.find('\n'), std::string::npos);
  EXPECT_EQ(unknown_name("model", "x\n\x1by", {"z"}).message, "unknown model 'x??y': valid: z");
}

// A table of distances would take gigabytes.
TEST(UnknownName, TakesALongNameQuickly) {
  const std::string name(100 << 20, 'x');
  EXPECT_EQ(unknown_name("model", name, {"exponential"}).message.size(),
            std::string("unknown model '': valid: exponential").size() + name.size());
}

}  // namespace names_test
}  // namespace grapevine
