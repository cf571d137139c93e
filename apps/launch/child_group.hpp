// ChildGroup: the children of one job on this machine, in one poll().
#pragma once
#include <poll.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/cluster/process_supervision.hpp"
#include "apps/launch/child_process.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// A child has a number, from 0 in the order of their starts. The children end with this object. One
// thread, which polls:
//   group.add_to(waits, true);  poll(waits);  for (const auto& ended : group.handle(waits)) …
class ChildGroup {
 public:
  using OnLine = std::function<void(std::size_t child, bool to_err, const std::string& line)>;
  struct Ended {
    std::size_t child = 0;
    ProcessEnd end;
  };

  explicit ChildGroup(OnLine on_line) : on_line_(std::move(on_line)) {}

  // Errors as ChildProcess::start()'s. The child lives as long as this group, or until clear().
  Expected<ChildProcess*> start(const ChildCommand& command);
  // Kills all, and forgets them.
  void clear() { children_.clear(); }
  // To all that have not ended.
  void signal(int number);
  // To one, where it has not ended.
  void signal(std::size_t child, int number);
  bool running() const;

  // `reads`: also polls for output. Without it the children wait once their pipes are full.
  void add_to(std::vector<pollfd>& waits, bool reads);
  // Reads the output that is ready, then reaps the children that have ended; the lines come from
  // within. Children that were started after add_to() wait for the next one.
  std::vector<Ended> handle(const std::vector<pollfd>& waits);

 private:
  struct Child {
    std::unique_ptr<ChildProcess> process;
    bool ended = false;
    std::optional<std::size_t> polled_at;  // its first entry in the waits of add_to()
  };

  LineBuffer::OnLine line_of(std::size_t child, bool to_err) const;
  void read_ready(std::size_t number, const std::vector<pollfd>& waits);

  const OnLine on_line_;
  std::vector<Child> children_;
};

}  // namespace grapevine
