#include "actors/run/control/control_hub.hpp"

#include <utility>

namespace grapevine {
namespace {

Error run_ended() { return bad_input("the run has ended"); }

template <class Answer>
Expected<Answer> wait_for(std::future<Expected<Answer>> answer) {
  if (answer.wait_for(ControlHub::kTimeout) != std::future_status::ready)
    return Error{Errc::timeout, "process 0 of the run does not answer: it is overloaded"};
  try {
    return answer.get();
  } catch (const std::future_error&) {  // the actor has ended before it answered
    return run_ended();
  }
}

}  // namespace

// REQUIRES: mutex_ is held.
Error ControlHub::no_line() const {
  return ended_ ? run_ended() : Error{Errc::failed, "the run has not begun: ask again"};
}

Expected<RunStatus> ControlHub::status() {
  auto promise = std::make_shared<std::promise<Expected<RunStatus>>>();
  auto answer = promise->get_future();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!line_) return no_line();
    line_->ask_status(std::move(promise));
  }
  return wait_for(std::move(answer));
}

Expected<std::string> ControlHub::ask(const ControlRequest& request) {
  auto promise = std::make_shared<std::promise<Expected<std::string>>>();
  auto answer = promise->get_future();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!line_) return no_line();
    line_->ask_change(request, std::move(promise));
  }
  return wait_for(std::move(answer));
}

void ControlHub::attach(std::unique_ptr<Line> line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  line_ = std::move(line);
}

void ControlHub::detach() {
  const std::lock_guard<std::mutex> lock(mutex_);
  line_.reset();
  ended_ = true;
}

}  // namespace grapevine
