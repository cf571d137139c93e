// Browser: opens a page in a headless Chromium and reports its document, its console and the
// requests that it made. Header-only.
#pragma once
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/apps/process.hpp"

namespace grapevine {

struct OpenedPage {
  std::string dom;                    // the document after its scripts
  std::vector<std::string> console;   // messages, refusals by the Content-Security-Policy as well
  std::vector<std::string> requests;  // addresses on other machines
  std::string problem;                // of the browser itself; empty: none

  // The value of an attribute in the first element that has `id="…"`; "" for the root element.
  std::string attribute(const std::string& id, const std::string& name) const {
    const std::string tag = id.empty() ? "<html[^>]*>" : "<[a-z]+ [^>]*id=\"" + id + "\"[^>]*>";
    std::smatch element, value;
    if (!std::regex_search(dom, element, std::regex(tag))) return "(no element)";
    const std::string text = element.str();
    if (!std::regex_search(text, value, std::regex(" " + name + "=\"([^\"]*)\""))) return "(none)";
    return value[1];
  }
  double number(const std::string& id, const std::string& name) const {
    return std::strtod(attribute(id, name).c_str(), nullptr);
  }
};

class Browser {
 public:
  // Nothing where this machine has no browser that starts. `folder`: for its files.
  static std::optional<Browser> find(const std::filesystem::path& folder) {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "");
    for (std::string in; std::getline(folders, in, ':');)
      for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
        const std::filesystem::path program = std::filesystem::path(in) / name;
        if (::access(program.c_str(), X_OK) != 0) continue;
        Browser browser(program.string(), folder);
        // Some distributions have a stub under this name.
        if (browser.run({"--version"}).exit_code == 0) return browser;
      }
    return std::nullopt;
  }

  // `flags`: further ones of Chromium.
  OpenedPage open(const std::filesystem::path& page, const std::string& fragment,
                  std::vector<std::string> flags = {}) const {
    return open_address("file://" + page.string() + fragment, std::move(flags));
  }
  OpenedPage open_address(const std::string& address, std::vector<std::string> flags) const {
    const std::filesystem::path profile = folder_ / "profile", log = folder_ / "net_log.json";
    std::filesystem::remove_all(profile);
    for (const char* flag :
         {"--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
          "--disable-dev-shm-usage", "--disable-background-networking",
          "--disable-component-update", "--disable-extensions", "--enable-logging=stderr",
          "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--dump-dom"})
      flags.emplace_back(flag);
    flags.push_back("--user-data-dir=" + profile.string());
    flags.push_back("--log-net-log=" + log.string());
    flags.push_back(address);
    const ProcessResult result = run(flags);
    OpenedPage opened;
    opened.dom = result.out;
    if (result.exit_code != 0) opened.problem = result.describe();
    std::istringstream lines(result.err);
    for (std::string line; std::getline(lines, line);)
      if (line.find(":CONSOLE") != std::string::npos) opened.console.push_back(line);
    opened.requests = requests_in(log);
    if (!std::filesystem::exists(log)) opened.problem += "the browser has written no net log";
    return opened;
  }

 private:
  Browser(std::string program, std::filesystem::path folder)
      : program_(std::move(program)), folder_(std::move(folder)) {}

  ProcessResult run(const std::vector<std::string>& arguments) const {
    ProcessOptions options;
    options.program = program_;
    options.environment = {"HOME=" + folder_.string()};
    return run_process(arguments, options);
  }

  // Without those that the browser makes for itself.
  static std::vector<std::string> requests_in(const std::filesystem::path& log) {
    std::ifstream file(log);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const std::regex address("\"url\":\"((https?|wss?|ftp)://([^/\"]*)[^\"]*)\"");
    const std::regex own(
        "(clients2|accounts)\\.google\\.com|update\\.googleapis\\.com|"
        "optimizationguide-pa\\.googleapis\\.com|redirector\\.gvt1\\.com");
    std::vector<std::string> requests;
    for (std::sregex_iterator it(text.begin(), text.end(), address), end; it != end; ++it)
      if (!std::regex_match((*it)[3].str(), own)) requests.push_back((*it)[1]);
    return requests;
  }

  std::string program_;
  std::filesystem::path folder_;
};

}  // namespace grapevine
