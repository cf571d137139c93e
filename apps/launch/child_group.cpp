#include "apps/launch/child_group.hpp"

#include <algorithm>
#include <utility>

namespace grapevine {
namespace {

// The entries of a child among the waits; its end follows.
constexpr std::size_t kOut = 0, kErr = 1;

}  // namespace

Expected<ChildProcess*> ChildGroup::start(const ChildCommand& command) {
  auto process = ChildProcess::start(command);
  if (!process) return process.error();
  children_.push_back({std::move(*process), false, std::nullopt});
  return children_.back().process.get();
}

void ChildGroup::signal(int number) {
  for (Child& child : children_)
    if (!child.ended) child.process->signal(number);
}

void ChildGroup::signal(std::size_t child, int number) {
  if (!children_[child].ended) children_[child].process->signal(number);
}

bool ChildGroup::running() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const Child& child) { return !child.ended; });
}

void ChildGroup::add_to(std::vector<pollfd>& waits, bool reads) {
  for (Child& child : children_) {
    if (child.ended) continue;
    child.polled_at = waits.size();
    for (const int descriptor : {child.process->out(), child.process->err()})
      waits.push_back({reads ? descriptor : -1, POLLIN, 0});
    waits.push_back({child.process->end(), POLLIN, 0});
  }
}

std::vector<ChildGroup::Ended> ChildGroup::handle(const std::vector<pollfd>& waits) {
  for (std::size_t i = 0; i < children_.size(); ++i) read_ready(i, waits);
  std::vector<Ended> ended;
  for (std::size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    // Also those that ended after poll(): a process that lost them may have ended before.
    if (!std::exchange(child.polled_at, std::nullopt)) continue;
    const auto end = child.process->reap(line_of(i, false), line_of(i, true));
    if (!end) continue;
    child.ended = true;
    ended.push_back({i, *end});
  }
  return ended;
}

void ChildGroup::read_ready(std::size_t number, const std::vector<pollfd>& waits) {
  const Child& child = children_[number];
  if (!child.polled_at) return;
  const pollfd* const own = waits.data() + *child.polled_at;
  if (own[kOut].revents != 0) child.process->read_out(line_of(number, false));
  if (own[kErr].revents != 0) child.process->read_err(line_of(number, true));
}

LineBuffer::OnLine ChildGroup::line_of(std::size_t child, bool to_err) const {
  return [this, child, to_err](const std::string& line) { on_line_(child, to_err, line); };
}

}  // namespace grapevine
