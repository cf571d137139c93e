#include "apps/console/run_display.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <ostream>
#include <utility>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "actors/cluster/output/line_backlog.hpp"
#include "apps/console/text/terminal.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBacklogBytes = std::size_t{1} << 20;
constexpr std::chrono::milliseconds kDisplayPoll{20};

}  // namespace

struct RunDisplay::Shared {
  explicit Shared(Console& console_to_use) : console(console_to_use), backlog(kBacklogBytes) {}

  void say(std::string text, bool to_err) {
    tell([&](Shared& shared) { shared.backlog.add({-1, to_err, std::move(text)}); });
  }

  // Changes the next task of the thread.
  template <class Change>
  void tell(Change change) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      change(*this);
      pending = true;
    }
    changed.notify_all();
  }

  // The thread: writes all that waits, until it is asked to end and nothing waits.
  void serve() {
    for (std::unique_lock<std::mutex> lock(mutex);;) {
      changed.wait(lock, [this] { return pending || ending; });
      if (!pending) return;
      pending = false;
      writing = true;
      auto options = std::exchange(begin, std::nullopt);
      const auto newest = std::exchange(progress, std::nullopt);
      const auto over = std::exchange(end, std::nullopt);
      // With the rest of the pending output, so that no line overtakes the end of the bar before
      // it.
      const LineBacklog::Waiting lines = backlog.take();
      lock.unlock();
      if (options) bar.emplace(console.err, *std::move(options));
      // Its last line before the results.
      const bool finished = over.value_or(false);
      if (finished) draw(newest, BarEnd::finished);
      write_all(lines);
      if (!finished) draw(newest, over ? BarEnd::removed : BarEnd::none);
      lock.lock();
      writing = false;
      changed.notify_all();
    }
  }

  void write_all(const LineBacklog::Waiting& waiting) {
    if (waiting.dropped > 0) write({-1, true, left_out(waiting.dropped) + "\n"});
    for (const JobLine& line : waiting.lines) write(line);
  }

  enum class BarEnd { none, removed, finished };

  void draw(const std::optional<RunProgress>& newest, BarEnd end_of_bar) {
    if (!bar || (!newest && end_of_bar == BarEnd::none) || !may_write()) return;
    if (newest) bar->update(*newest);
    if (end_of_bar == BarEnd::finished) bar->finish();
    if (end_of_bar != BarEnd::none) bar.reset();
  }

  // An abandoned thread writes nothing more: the streams belong to the end of the process then.
  bool may_write(bool to_err = true) {
    const std::lock_guard<std::mutex> lock(mutex);
    on_err = to_err;
    ++written;
    return !left_behind;
  }

  void write(const JobLine& line) {
    if (!may_write(line.to_err)) return;
    if (bar) bar->clear();
    (line.to_err ? console.err : console.out) << line.text << std::flush;
  }

  Console& console;
  LineBacklog backlog;
  std::optional<ProgressBar> bar;  // the thread's

  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::optional<ProgressOptions> begin;
  std::optional<RunProgress> progress;  // the newest
  std::optional<bool> end;              // of the bar, with a last line or without
  bool pending = false;                 // that something waits
  bool writing = false;                 // the output taken last
  bool ending = false;
  bool left_behind = false;
  bool on_err = true;        // where the newest piece goes
  std::int64_t written = 0;  // pieces
};

namespace {

// Logs like the logger of standard error, but without waiting for it.
template <class Say>
class DisplaySink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  DisplaySink(Say say, bool color) : say_(std::move(say)), color_(color) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    std::string text(formatted.data(), formatted.size());
    if (color_ && message.color_range_end > message.color_range_start) {
      text.insert(message.color_range_end, "\x1b[m");
      text.insert(message.color_range_start,
                  message.level >= spdlog::level::err ? "\x1b[31m\x1b[1m" : "\x1b[33m\x1b[1m");
    }
    say_(std::move(text));
  }
  void flush_() override {}

 private:
  const Say say_;
  const bool color_;
};

std::shared_ptr<spdlog::logger>& standard_logger() {
  static std::shared_ptr<spdlog::logger> logger;
  return logger;
}

}  // namespace

RunDisplay::RunDisplay(Console& console)
    : console_(console),
      shared_(std::make_shared<Shared>(console)),
      thread_([shared = shared_] { shared->serve(); }) {
  auto say = [shared = shared_](std::string text) { shared->say(std::move(text), true); };
  auto sink = std::make_shared<DisplaySink<decltype(say)>>(
      std::move(say), console.terminal && detect_terminal(2).color);
  auto logger = std::make_shared<spdlog::logger>("display", std::move(sink));
  spdlog::initialize_logger(logger);
  standard_logger() = spdlog::default_logger();
  spdlog::set_default_logger(std::move(logger));
}

RunDisplay::~RunDisplay() {
  // An abandoned thread of the run may still log.
  if (!console_.thread_left_behind) spdlog::set_default_logger(standard_logger());
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->ending = true;
  }
  shared_->changed.notify_all();
  thread_.join();
}

void RunDisplay::say_error(std::string text) { shared_->say(std::move(text), true); }
void RunDisplay::say_result(std::string text) { shared_->say(std::move(text), false); }

void RunDisplay::begin_progress(ProgressOptions options) {
  shared_->tell([&](Shared& shared) { shared.begin = std::move(options); });
}

void RunDisplay::show(const RunProgress& progress) {
  shared_->tell([&](Shared& shared) { shared.progress = progress; });
}

void RunDisplay::end_progress(bool finished) {
  shared_->tell([&](Shared& shared) { shared.end = shared.end.value_or(false) || finished; });
}

bool RunDisplay::drain(const std::function<bool()>& stop_requested, Duration timeout,
                       Duration short_timeout) {
  if (!thread_.joinable()) return false;  // it was abandoned before
  end_progress(false);
  std::unique_lock<std::mutex> lock(shared_->mutex);
  std::int64_t written = shared_->written;
  auto since = Clock::now();
  while (shared_->pending || shared_->writing) {
    if (std::exchange(written, shared_->written) != shared_->written) since = Clock::now();
    if (Clock::now() - since >= (stop_requested() ? short_timeout : timeout)) {
      shared_->left_behind = true;
      (shared_->on_err ? console_.err_stuck : console_.out_stuck) = true;
      console_.thread_left_behind = true;
      lock.unlock();
      thread_.detach();
      return false;
    }
    shared_->changed.wait_for(lock, kDisplayPoll);
  }
  return true;
}

}  // namespace grapevine
