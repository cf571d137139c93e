// TopScreen: a terminal in full-screen mode, by ncurses.
#pragma once
#include <vector>

#include "apps/top/top_frame.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// While it lives, the terminal shows what show() gives it; its end restores the terminal. One at a
// time in a process; on one thread.
class TopScreen {
 public:
  static constexpr int kNoKey = -1;

  // Errors (bad_input): standard input and output are no terminal that ncurses knows.
  static Expected<TopScreen> open();
  TopScreen(TopScreen&& other) noexcept;
  TopScreen& operator=(TopScreen&&) = delete;
  ~TopScreen();

  int rows() const;
  int columns() const;
  void show(const std::vector<FrameLine>& frame);
  // The next key, or kNoKey after a while or a change of the window's size.
  int wait_for_key();

 private:
  TopScreen() = default;
  bool open_ = true;
};

}  // namespace grapevine
