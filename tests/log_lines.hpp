// What this process logs, for tests.
#pragma once
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace grapevine {

// The lines of all levels while it exists, instead of on stderr: "[warning] the text". REQUIRES: no
// other thread logs in the constructor and in the destructor: so it outlives what it watches.
class LogLines {
 public:
  LogLines() : sink_(std::make_shared<Sink>()), before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>("test", sink_);
    logger->set_level(spdlog::level::trace);
    spdlog::set_default_logger(logger);
  }
  ~LogLines() { spdlog::set_default_logger(before_); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  // Lines with all of `parts`.
  std::size_t count(const std::vector<std::string>& parts) const {
    const std::lock_guard<std::mutex> lock(sink_->mutex);
    return sink_->count(parts);
  }
  // False after the deadline, which only a failure reaches.
  bool wait_for(const std::vector<std::string>& parts, std::size_t times = 1) const {
    std::unique_lock<std::mutex> lock(sink_->mutex);
    return sink_->added.wait_for(lock, std::chrono::seconds(60),
                                 [&] { return sink_->count(parts) >= times; });
  }
  std::string text() const {
    const std::lock_guard<std::mutex> lock(sink_->mutex);
    std::string all;
    for (const std::string& line : sink_->lines) all += line + "\n";
    return all;
  }

 private:
  struct Sink final : spdlog::sinks::base_sink<spdlog::details::null_mutex> {
    void sink_it_(const spdlog::details::log_msg& message) override {
      const std::lock_guard<std::mutex> lock(mutex);
      const auto level = spdlog::level::to_string_view(message.level);
      lines.push_back("[" + std::string(level.data(), level.size()) + "] " +
                      std::string(message.payload.data(), message.payload.size()));
      added.notify_all();
    }
    void flush_() override {}
    std::size_t count(const std::vector<std::string>& parts) const {
      std::size_t found = 0;
      for (const std::string& line : lines) {
        bool all = true;
        for (const std::string& part : parts) all = all && line.find(part) != std::string::npos;
        found += all ? 1 : 0;
      }
      return found;
    }

    std::mutex mutex;
    std::condition_variable added;
    std::vector<std::string> lines;
  };

  const std::shared_ptr<Sink> sink_;
  const std::shared_ptr<spdlog::logger> before_;
};

}  // namespace grapevine
