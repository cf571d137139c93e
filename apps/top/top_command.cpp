#include "apps/top/top_command.hpp"

#include <chrono>
#include <cmath>
#include <future>
#include <string>
#include <utility>

#include "apps/console/signals.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/control/control_command.hpp"
#include "apps/control/control_target.hpp"
#include "apps/top/top_screen.hpp"
#include "messages/time.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;
using Answer = Expected<nlohmann::ordered_json>;

class TopCommand : public Command {
 public:
  void declare(CLI::App& app) override {
    target_.declare(app);
    add_switch(app, "once", once_, "print one table instead of a full screen");
    add_option(app, "interval", interval_s_, "seconds between two questions");
    add_switch(app, "json", json_, "print the status once, as one JSON object");
  }

  bool computes() const override { return false; }

  Expected<void> run(Console& console) override {
    constexpr double kShortest = 0.1, kLongest = 3600;
    if (auto checked = check_range("--interval", interval_s_, kShortest, kLongest, " seconds");
        !checked)
      return checked;
    auto client = target_.find();
    if (!client) return client.error();
    return once_ || json_ ? print_status(*client, json_, console) : watch(*client, console);
  }

 private:
  // Until q, a signal or the end of the run, whose last status is printed.
  Expected<void> watch(ControlClient& client, Console& console) const {
    SignalFlags signals;
    TopState state;
    std::future<Answer> answer;
    Expected<void> ended;
    {
      auto screen = TopScreen::open();
      if (!screen) return screen.error();
      const auto interval = std::chrono::duration_cast<Clock::duration>(from_seconds(interval_s_));
      Clock::time_point next = Clock::now();
      for (bool quits = false; !quits && !signals.stop_requested();) {
        if (!answer.valid() && Clock::now() >= next && !state.paused) {
          next = Clock::now() + interval;
          answer = std::async(std::launch::async, [&client] { return client.status(); });
        }
        if (is_ready(answer)) ended = take(answer.get(), state);
        if (!ended) break;
        screen->show(top_frame(state, screen->rows(), screen->columns()));
        const int key = screen->wait_for_key();
        quits = key == 'q';
        if (!quits) press(state, key);
      }
    }
    if (ended) return {};
    if (!state.view) return ended;
    console.out << text_of(*state.view, status_width()) << "\n" << ended.error().message << "\n";
    return {};
  }

  static bool is_ready(const std::future<Answer>& answer) {
    return answer.valid() && answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  // An error: there is nothing more to watch.
  static Expected<void> take(const Answer& status, TopState& state) {
    if (!status && status.error().code == Errc::bad_input) return status.error();
    if (!status) {
      state.problem = status.error().message;
      return {};
    }
    auto view = view_of(*status, state.view ? &*state.view : nullptr);
    if (!view) return view.error();
    state.view = *std::move(view);
    state.problem.clear();
    return {};
  }

  ControlTarget target_;
  bool once_ = false, json_ = false;
  double interval_s_ = 1;
};

}  // namespace

std::unique_ptr<Command> make_top_command() { return std::make_unique<TopCommand>(); }

}  // namespace grapevine
