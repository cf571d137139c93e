// The folder rule: messages <- {algorithms, gpu, net} <- actors <- apps, and inside algorithms/
// {kernels, graphs} <- parts <- compressors <- collectives <- wiring <- roles
// <- lockstep; no folder is a heap;
// CAF only where it belongs; no clock, sleep or unseeded randomness in algorithms/ and actors/.
// Reads the sources themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace grapevine {
namespace folder_rule_test {

namespace fs = std::filesystem;

// What a file of each folder may include, itself among them.
const std::map<std::string, std::set<std::string>>& allowed_includes() {
  static const std::map<std::string, std::set<std::string>> allowed = {
      {"messages", {"messages"}},
      {"algorithms", {"messages", "algorithms"}},
      {"gpu", {"messages", "gpu"}},
      {"net", {"messages", "net"}},
      {"actors", {"messages", "algorithms", "gpu", "net", "actors"}},
      {"apps", {"messages", "algorithms", "gpu", "net", "actors", "apps"}}};
  return allowed;
}

// The same of the rooms of algorithms/; "" is what lies in none of them.
const std::map<std::string, std::set<std::string>>& allowed_rooms() {
  static const std::map<std::string, std::set<std::string>> allowed = {
      {"", {""}},
      {"kernels", {"", "kernels"}},
      {"graphs", {"", "graphs"}},
      {"parts", {"", "kernels", "parts"}},
      {"compressors", {"", "kernels", "parts", "compressors"}},
      {"collectives", {"", "kernels", "parts", "compressors", "collectives"}},
      {"wiring", {"", "kernels", "graphs", "parts", "compressors", "collectives", "wiring"}},
      {"roles",
       {"", "kernels", "graphs", "parts", "compressors", "collectives", "wiring", "roles"}},
      {"lockstep", {"", "graphs", "wiring", "roles", "lockstep"}}};
  return allowed;
}

constexpr std::size_t kMostUnits = 16;  // in one folder, not counting its sub-folders

bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

std::string first_component(const std::string& path) { return path.substr(0, path.find('/')); }

// The folder inside the first one; "" for a file that lies there itself.
std::string second_component(const std::string& path) {
  const std::string rest = path.substr(std::min(path.size(), path.find('/') + 1));
  return rest.find('/') == std::string::npos ? "" : first_component(rest);
}

bool may_use_caf(const std::string& path) {
  for (const char* place : {"messages/caf_types", "actors/", "apps/"})
    if (starts_with(path, place)) return true;
  return false;
}

// ---- A source with its comments (and, if wanted, its literals) blanked: line numbers stay.

class Blanker {
 public:
  Blanker(const std::string& text, bool blank_literals)
      : text_(text), blank_literals_(blank_literals) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (starts("//")) {
        blank_to(std::min(text_.find('\n', at_), text_.size()));
      } else if (starts("/*")) {
        blank_to(after("*/", at_ + 2));
      } else if (starts("R\"") && !is_word(previous())) {
        const std::size_t open = std::min(text_.find('(', at_), text_.size() - 1);
        const std::string close = ")" + text_.substr(at_ + 2, open - at_ - 2) + "\"";
        literal(after(close, open));
      } else if (text_[at_] == '"' || (text_[at_] == '\'' && !is_word(previous()))) {
        literal(end_of_quoted());
      } else {
        out_ += text_[at_++];
      }
    }
    return out_;
  }

 private:
  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  char previous() const { return at_ > 0 ? text_[at_ - 1] : ' '; }
  bool starts(const std::string& what) const { return text_.compare(at_, what.size(), what) == 0; }
  std::size_t after(const std::string& what, std::size_t from) const {
    const std::size_t found = text_.find(what, from);
    return found == std::string::npos ? text_.size() : found + what.size();
  }
  std::size_t end_of_quoted() const {
    std::size_t i = at_ + 1;
    while (i < text_.size() && text_[i] != text_[at_] && text_[i] != '\n')
      i += text_[i] == '\\' ? 2 : 1;
    return std::min(i + 1, text_.size());
  }
  void literal(std::size_t end) {
    if (blank_literals_) return blank_to(end);
    out_ += text_.substr(at_, end - at_);
    at_ = end;
  }
  void blank_to(std::size_t end) {
    for (; at_ < end; ++at_) out_ += text_[at_] == '\n' ? '\n' : ' ';
  }

  const std::string& text_;
  const bool blank_literals_;
  std::string out_;
  std::size_t at_ = 0;
};

std::size_t line_of(const std::string& text, std::size_t position) {
  return 1 + static_cast<std::size_t>(std::count(
                 text.begin(), text.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
}

std::string violation(const std::string& path, std::size_t line, const std::string& what) {
  return path + ":" + std::to_string(line) + ": " + what;
}

// ---- The rules. `path` is relative to the root.

std::string include_violation(const std::string& path, const std::string& target, bool quoted) {
  const std::string folder = first_component(path);
  const std::string included = first_component(target);
  if (included == "caf")
    return may_use_caf(path) ? "" : "CAF belongs to messages/caf_types*, net/tcp*, actors, apps";
  if (allowed_includes().count(included) == 0 && included != "tests") {
    if (!quoted) return "";
    return "\"" + target + "\" is not written from the root; other libraries take <>";
  }
  if (target.find("..") != std::string::npos) return "\"" + target + "\" climbs out of its folder";
  if (allowed_includes().at(folder).count(included) == 0)
    return folder + " must not include " + included + " (" + target + ")";
  // The messages between actors do not depend on the actors.
  if (starts_with(path, "actors/protocol/"))
    for (const char* actors : {"actors/run/", "actors/cluster/"})
      if (starts_with(target, actors)) return "actors/protocol must not include " + target;
  if (folder != "algorithms" || included != "algorithms") return "";
  const std::string room = second_component(path), other = second_component(target);
  if (allowed_rooms().count(room) == 0) return "algorithms/" + room + " has no place in the rule";
  if (allowed_rooms().at(room).count(other) == 0)
    return "algorithms/" + room + " must not include " + target;
  return "";
}

std::vector<std::string> include_violations(const std::string& path, const std::string& text) {
  static const std::regex include(R"re((?:^|\n)[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">])re");
  const std::string source = Blanker(text, false).run();
  std::vector<std::string> found;
  for (std::sregex_iterator it(source.begin(), source.end(), include), end; it != end; ++it) {
    const std::string what = include_violation(path, it->str(2), it->str(1) == "\"");
    if (!what.empty())
      found.push_back(
          violation(path, line_of(source, static_cast<std::size_t>(it->position(2))), what));
  }
  return found;
}

// Clocks, sleeps, generators that nobody seeded. torch's own generators pass where the call names
// one.
std::vector<std::string> impurities(const std::string& path, const std::string& text) {
  static const std::regex forbidden(
      R"(\b(?:steady_clock|system_clock|high_resolution_clock|file_clock|utc_clock|clock_gettime)"
      R"(|gettimeofday|timespec_get|localtime|gmtime|sleep_for|sleep_until|usleep|nanosleep)"
      R"(|random_device|default_random_engine|random_shuffle|drand48|getrandom)\b)"
      R"(|\bs?rand(?:om)?\s*\(|\b(?:std\s*::\s*|::\s*)(?:time|clock)\s*\()"
      R"(|\btime\s*\(\s*(?:nullptr|NULL|0|&)|\bsleep\s*\(\s*\d)"
      R"(|\.admit\s*\(\s*\))"  // of a LogLimit: its default reads a clock
      R"(|\b(?:at|torch)\s*::\s*(?:rand|bernoulli|normal|multinomial)\w*\s*\((?![^;]*[gG]enerator))");
  const std::string folder = first_component(path);
  if (folder != "algorithms" && folder != "actors") return {};
  const std::string source = Blanker(text, true).run();
  std::vector<std::string> found;
  for (std::sregex_iterator it(source.begin(), source.end(), forbidden), end; it != end; ++it)
    found.push_back(violation(path, line_of(source, static_cast<std::size_t>(it->position())),
                              it->str() + ": time and chance come from Env"));
  return found;
}

std::vector<std::string> violations(const std::string& path, const std::string& text) {
  std::vector<std::string> found = include_violations(path, text);
  for (std::string& impurity : impurities(path, text)) found.push_back(std::move(impurity));
  return found;
}

bool is_source(const fs::path& path) {
  static const std::set<std::string> extensions = {".hpp", ".cpp", ".h", ".cu", ".cuh"};
  return extensions.count(path.extension().string()) > 0;
}

// ---- The sources of the project

TEST(FolderRule, HoldsInEverySource) {
  const fs::path root(GRAPEVINE_SOURCE_DIR);
  std::size_t files = 0;
  for (const auto& [folder, allowed] : allowed_includes()) {
    if (!fs::exists(root / folder)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(in)), {});
      const std::string path = fs::relative(entry.path(), root).generic_string();
      for (const std::string& found : violations(path, text)) ADD_FAILURE() << found;
      ++files;
    }
  }
  EXPECT_GE(files, 20u) << "the walk found hardly any sources under " << root;
}

// A unit is a header and its source. More of them want rooms.
TEST(FolderRule, NoFolderIsAHeap) {
  const fs::path root(GRAPEVINE_SOURCE_DIR);
  std::map<std::string, std::set<std::string>> units;
  for (const auto& [folder, allowed] : allowed_includes())
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file() && is_source(entry.path()))
        units[fs::relative(entry.path().parent_path(), root).generic_string()].insert(
            entry.path().stem().string());
  EXPECT_GE(units.size(), 20U);
  for (const auto& [folder, names] : units) EXPECT_LE(names.size(), kMostUnits) << folder;
}

// ---- The scanner itself

struct Snippet {
  const char* path;
  const char* text;
  const char* expected;  // start of the only violation; empty: none
};

// Two types of one name in two headers are one to the linker: whichever functions it keeps serve
// both.
TEST(FolderRule, NoTwoHeadersDefineOneType) {
  const fs::path root(GRAPEVINE_SOURCE_DIR);
  const std::regex definition(
      R"((?:^|\n)(?:struct|class) ([A-Z]\w*)(?: final)?\s*(?::(?!:)[^;{]*)?\{)");
  std::map<std::string, std::string> defined_in;
  for (const auto& [folder, allowed] : allowed_includes())
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || entry.path().extension() != ".hpp") continue;
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(in)), {});
      const std::string path = fs::relative(entry.path(), root).generic_string();
      for (std::sregex_iterator it(text.begin(), text.end(), definition), end; it != end; ++it) {
        const auto [first, is_new] = defined_in.emplace((*it)[1], path);
        EXPECT_TRUE(is_new || first->second == path)
            << (*it)[1] << ": in " << first->second << " and in " << path;
      }
    }
  EXPECT_GE(defined_in.size(), 200U);
}

TEST(FolderRule, ScannerFindsForbiddenIncludes) {
  const std::vector<Snippet> snippets = {
      {"algorithms/a.cpp", "#include \"messages/ids.hpp\"\n#include <vector>\n", ""},
      {"algorithms/a.cpp", "\n#include \"gpu/model/model.hpp\"\n",
       "algorithms/a.cpp:2: algorithms must"},
      {"algorithms/a.cpp", "#include <net/x.hpp>", "algorithms/a.cpp:1: algorithms must"},
      {"algorithms/roles/a.cpp", "#include \"algorithms/wiring/x.hpp\"", ""},
      {"algorithms/roles/a.cpp", "#include \"algorithms/role.hpp\"", ""},
      {"algorithms/wiring/a.cpp", "#include \"algorithms/roles/x.hpp\"",
       "algorithms/wiring/a.cpp:1: algorithms/wiring must not include algorithms/roles/x.hpp"},
      {"algorithms/a.hpp", "#include \"algorithms/kernels/x.hpp\"",
       "algorithms/a.hpp:1: algorithms/ must not include"},
      {"algorithms/new/a.cpp", "#include \"algorithms/role.hpp\"",
       "algorithms/new/a.cpp:1: algorithms/new has no place"},
      {"gpu/a.cu", "#  include  \"net/x.hpp\"", "gpu/a.cu:1: gpu must not include net"},
      {"net/a.hpp", "\t#include \"algorithms/x.hpp\"", "net/a.hpp:1: net must not include"},
      {"messages/a.hpp", "#include \"actors/x.hpp\"", "messages/a.hpp:1: messages must not"},
      {"actors/a.cpp", "#include \"apps/x.hpp\"", "actors/a.cpp:1: actors must not include apps"},
      {"actors/a.cpp", "#include \"gpu/x.hpp\"\n#include \"net/x.hpp\"", ""},
      {"actors/protocol/a.hpp", "#include \"actors/record/x.hpp\"", ""},
      {"actors/protocol/a.hpp", "#include \"actors/run/x.hpp\"",
       "actors/protocol/a.hpp:1: actors/protocol must not include actors/run/x.hpp"},
      {"apps/a.cpp", "#include \"tests/x.hpp\"", "apps/a.cpp:1: apps must not include tests"},
      {"apps/zoo/a.cpp", "#include \"zoo.hpp\"", "apps/zoo/a.cpp:1: \"zoo.hpp\" is not written"},
      {"apps/a.cpp", "#include \"../net/x.hpp\"", "apps/a.cpp:1: \"../net/x.hpp\" is not written"},
      {"apps/a.cpp", "#include \"apps/../x.hpp\"", "apps/a.cpp:1: \"apps/../x.hpp\" climbs"},
      {"algorithms/a.cpp", "// #include \"gpu/model/model.hpp\"\n/*\n#include \"net/x.hpp\"\n*/",
       ""},
      {"algorithms/a.cpp", "/* a\nb */\n#include \"gpu/x.hpp\"", "algorithms/a.cpp:3: "},
  };
  for (const Snippet& s : snippets) {
    SCOPED_TRACE(s.text);
    const std::vector<std::string> found = violations(s.path, s.text);
    const std::string expected = s.expected;
    ASSERT_EQ(found.size(), expected.empty() ? 0u : 1u);
    EXPECT_TRUE(expected.empty() || starts_with(found[0], expected)) << found[0];
  }
}

TEST(FolderRule, ScannerKeepsCafInItsPlaces) {
  const std::string include = "#include <caf/all.hpp>\n";
  for (const char* path : {"messages/caf_types.hpp", "messages/caf_types_io.cpp",
                           "actors/run/peer.cpp", "apps/main.cpp"})
    EXPECT_TRUE(violations(path, include).empty()) << path;
  for (const char* path :
       {"messages/codec.cpp", "algorithms/role.hpp", "gpu/device.cpp", "net/tcp/tcp.cpp"})
    EXPECT_EQ(violations(path, include).size(), 1u) << path;
}

TEST(FolderRule, ScannerFindsClocksSleepsAndChance) {
  const std::vector<std::string> forbidden = {"auto t = std::chrono::steady_clock::now();",
                                              "using Clock = std::chrono::system_clock;",
                                              "std::chrono::high_resolution_clock::now()",
                                              "std::this_thread::sleep_for(d);",
                                              "std::this_thread::sleep_until(t);",
                                              "sleep(1);",
                                              "usleep(10);",
                                              "std::random_device rd;",
                                              "int x = rand();",
                                              "std::rand ()",
                                              "srand(1);",
                                              "time(nullptr)",
                                              "std::time(&t)",
                                              "std::clock()",
                                              "::time(NULL)",
                                              "auto n = at::randn({d});",
                                              "auto p = torch::randperm(n);",
                                              "clock_gettime(CLOCK_MONOTONIC, &t);",
                                              "if (limit_.admit()) log();"};
  for (const std::string& line : forbidden)
    for (const char* path : {"algorithms/a.cpp", "actors/a.hpp"}) {
      const std::vector<std::string> found = violations(path, "\n\n" + line + "\n");
      ASSERT_EQ(found.size(), 1u) << line;
      EXPECT_EQ(found[0].find(std::string(path) + ":3: "), 0u) << found[0];
    }
  for (const char* path : {"gpu/a.cpp", "net/a.cpp", "messages/a.cpp", "apps/a.cpp"})
    EXPECT_TRUE(violations(path, forbidden[0]).empty()) << path;
}

TEST(FolderRule, ScannerLeavesInnocentCodeAlone) {
  const std::vector<std::string> innocent = {
      "// steady_clock would break the simulator",
      "/* rand() */ int x;",
      "log(\"call rand() or sleep_for()\");",
      "auto s = R\"(time(nullptr))\";",
      "auto s = R\"x(\" rand() )x\"; int y;",
      "char c = '\"'; // rand()",
      "int n = 1'000'000; // rand()",
      "env.rng()();",
      "double time = now; double operand(3);",
      "strand(1); on_time(0); step_time(0);",
      "limit_.admit(now);",
      "auto p = at::randperm(n, generator);",
      "auto p = at::randperm(n,\n    make_generator(seed));"};
  for (const std::string& line : innocent) {
    const std::vector<std::string> found = violations("algorithms/a.cpp", line);
    EXPECT_TRUE(found.empty()) << line << " -> " << found[0];
  }
}

TEST(FolderRule, ScannerSeesCodeAfterLiteralsAndComments) {
  for (const std::string line :
       {"log(\"\\\"\"); rand();", "char c = '\"'; rand();", "char c = '\\''; rand();",
        "int n = 1'000; rand();", "/* \" */ rand();", "auto s = R\"(\")\"; rand();",
        "u = \"//\"; rand();"})
    EXPECT_EQ(violations("actors/a.cpp", line).size(), 1u) << line;
}

}  // namespace folder_rule_test
}  // namespace grapevine
