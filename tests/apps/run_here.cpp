#include "tests/apps/run_here.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include <ATen/Parallel.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "apps/console/command.hpp"
#include "apps/verbs.hpp"

namespace grapevine {
namespace {

// Variables of this process while a call lasts: the call's own instead of all options.
class OwnVariables {
 public:
  explicit OwnVariables(const std::vector<std::string>& own) {
    std::vector<std::string> options;
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (std::string(*entry).rfind("GRAPEVINE_", 0) == 0) options.emplace_back(*entry);
    for (const std::string& option : options) set(option.substr(0, option.find('=')), std::nullopt);
    for (const std::string& entry : own) {
      const std::size_t equals = entry.find('=');
      set(entry.substr(0, equals),
          equals == std::string::npos ? std::nullopt : std::optional(entry.substr(equals + 1)));
    }
  }
  ~OwnVariables() {
    for (auto saved = before_.rbegin(); saved != before_.rend(); ++saved)
      put(saved->first, saved->second);
  }
  OwnVariables(const OwnVariables&) = delete;
  OwnVariables& operator=(const OwnVariables&) = delete;

 private:
  using Value = std::optional<std::string>;

  void set(const std::string& name, const Value& value) {
    const char* const old = ::getenv(name.c_str());
    before_.emplace_back(name, old == nullptr ? Value() : Value(old));
    put(name, value);
  }
  static void put(const std::string& name, const Value& value) {
    if (value)
      ::setenv(name.c_str(), value->c_str(), 1);
    else
      ::unsetenv(name.c_str());
  }

  std::vector<std::pair<std::string, Value>> before_;
};

// What a command, or its main(), changes in its process, given back: what it does with SIGPIPE,
// which processes inherit that are started later, threads, and logs, which go to `err`.
class ProcessState {
 public:
  explicit ProcessState(std::ostream& err) {
    // Nor may a connection that its other end has closed end the tests.
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &pipe_);
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(err);
    auto logger = std::make_shared<spdlog::logger>("here", std::move(sink));
    spdlog::initialize_logger(logger);
    spdlog::set_default_logger(std::move(logger));
    spdlog::set_level(spdlog::level::warn);
  }
  ~ProcessState() {
    spdlog::drop("here");
    spdlog::set_default_logger(logger_);
    spdlog::set_level(level_);
    at::set_num_threads(threads_);
    ::sigaction(SIGPIPE, &pipe_, nullptr);
  }
  ProcessState(const ProcessState&) = delete;
  ProcessState& operator=(const ProcessState&) = delete;

 private:
  struct sigaction pipe_ {};
  const int threads_ = at::get_num_threads();
  const spdlog::level::level_enum level_ = spdlog::get_level();
  const std::shared_ptr<spdlog::logger> logger_ = spdlog::default_logger();
};

}  // namespace

ProcessResult run_here(const std::vector<std::string>& arguments,
                       const std::vector<std::string>& environment) {
  std::ostringstream out, err;
  const ProcessState state(err);
  // Else `launch` would start the tests again, as the program of this process.
  std::vector<std::string> variables = {"GRAPEVINE_LAUNCH_PROGRAM=/bin/false"};
  variables.insert(variables.end(), environment.begin(), environment.end());
  const OwnVariables call(variables);
  Console console{out, err};
  ProcessResult result;
  result.exit_code = run_command_line(verbs(), arguments, console);
  result.out = out.str();
  result.err = err.str();
  EXPECT_FALSE(console.thread_left_behind) << result.describe();
  return result;
}

}  // namespace grapevine
