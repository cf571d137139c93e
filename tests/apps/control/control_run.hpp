// A job of several processes that a test controls.
#pragma once
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/apps/cluster/job_processes.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/run_here.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {

// A job that would run for hours.
class ControlledJob {
 public:
  ControlledJob(const std::string& algorithm, int processes, const std::vector<std::string>& more,
                const std::vector<std::string>& environment = {})
      : out_(folder_.path() / "run"),
        arguments_(
            with(small_run(algorithm, out_),
                 with({"--transport", "tcp", "--steps", "100000000", "--trace", "off"}, more))),
        environment_(environment),
        port_(cluster_test::free_port()),
        processes_(static_cast<std::size_t>(processes)) {
    for (std::size_t process = 0; process < processes_.size(); ++process) start(process);
  }

  const std::filesystem::path& out() const { return out_; }
  std::uint16_t port() const { return port_; }  // of process 0, for the others
  Process& process(std::size_t number) { return *processes_[number]; }
  // In the place of the earlier process of this number, as a launcher starts it again.
  void start(std::size_t number) {
    processes_[number].reset(new Process(cluster_test::start("torch", static_cast<int>(number),
                                                             static_cast<int>(processes_.size()),
                                                             port_, arguments_, environment_)));
  }
  std::string describe() const { return processes_[0]->so_far().describe(); }

  ProcessResult control(const std::vector<std::string>& action,
                        const std::vector<std::string>& environment = {}) const {
    return control_at(out_.string(), action, environment);
  }
  // In this process: tests ask again and again.
  static ProcessResult control_at(const std::string& target, const std::vector<std::string>& action,
                                  const std::vector<std::string>& environment = {}) {
    return run_here(with({"control", target}, action), environment);
  }
  // Asks again where a rank of a busy machine has not answered in time.
  ProcessResult set(const std::vector<std::string>& settings) const {
    return set_at(out_.string(), settings);
  }
  static ProcessResult set_at(const std::string& target, const std::vector<std::string>& settings) {
    const std::vector<std::string> action = with({"set"}, settings);
    ProcessResult result = control_at(target, action);
    for (int i = 0; i < 60 && result.err.find("ask again") != std::string::npos; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      result = control_at(target, action);
    }
    return result;
  }
  // Null where there is none.
  nlohmann::json status() const { return status_at(out_.string()); }
  static nlohmann::json status_at(const std::string& target,
                                  const std::vector<std::string>& environment = {}) {
    const ProcessResult result = control_at(target, {"status", "--json"}, environment);
    auto json = nlohmann::json::parse(result.out, nullptr, false);
    return result.exit_code == 0 && json.is_object() ? json : nlohmann::json();
  }
  // Until the status is as `wanted`; the last one.
  nlohmann::json status_when(const std::function<bool(const nlohmann::json&)>& wanted) const {
    return status_when_at(out_.string(), wanted);
  }
  static nlohmann::json status_when_at(const std::string& target,
                                       const std::function<bool(const nlohmann::json&)>& wanted,
                                       const std::vector<std::string>& environment = {}) {
    const auto deadline = std::chrono::steady_clock::now() + cluster_test::longest_wait();
    for (;;) {
      nlohmann::json now = status_at(target, environment);
      if (now.is_object() && wanted(now)) return now;
      if (std::chrono::steady_clock::now() > deadline) return now;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  // Every rank has taken steps.
  bool has_begun() const { return is_training(status_when(is_training)); }
  static bool is_training(const nlohmann::json& status) {
    if (!status.is_object() || status["stage"] != "running") return false;
    for (const auto& rank : status["ranks"])
      if (rank["steps"] < 2) return false;
    return true;
  }
  void kill_all() {
    for (const auto& process : processes_) process->signal(SIGKILL);
  }

 private:
  TemporaryDirectory folder_;
  const std::filesystem::path out_;
  const std::vector<std::string> arguments_, environment_;
  const std::uint16_t port_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace grapevine
