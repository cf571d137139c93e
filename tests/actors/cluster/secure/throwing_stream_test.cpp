// An exception in a connection of the middleman ends that connection, with a line of the log, and
// neither its event loop nor the process.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/secure/stream_scribe.hpp"
#include "tests/actors/cluster/secure/published_echo.hpp"

namespace grapevine {
namespace throwing_stream_test {

using published_echo::kEchoDeadline;
using published_echo::PublishedEcho;
using published_echo::WithLog;

class Throwing final : public tcp::Stream {
 public:
  Throwing(FileDescriptor socket, bool reads) : Stream(std::move(socket)), reads_(reads) {}
  tcp::Moved handshake(bool& /*wants_write*/) override { return {}; }
  tcp::Moved read(const iovec* /*parts*/, std::size_t /*count*/) override {
    if (reads_) throw std::runtime_error("the memory is short");
    tcp::Moved moved;
    moved.blocked = true;
    return moved;
  }
  tcp::Moved write(const iovec* /*parts*/, std::size_t /*count*/) override {
    throw std::runtime_error("the memory is short");
  }
  void finish_writing() override {}

 private:
  const bool reads_;
};

// Waits for the end of one connection.
caf::behavior watch(caf::io::broker* self, const caf::io::scribe_ptr& scribe, bool writes,
                    const std::shared_ptr<std::promise<void>>& closed) {
  const auto handle = scribe->hdl();
  self->add_scribe(scribe);
  self->configure_read(handle, caf::io::receive_policy::at_most(1024));
  if (writes) {
    self->write(handle, 4, "text");
    self->flush(handle);
  }
  return {[](const caf::io::new_data_msg&) { ADD_FAILURE() << "nothing was read"; },
          [=](const caf::io::connection_closed_msg&) {
            closed->set_value();
            self->quit();
          }};
}

class ThrowingStream : protected WithLog, public PublishedEcho {
 protected:
  // Over a connection to the published actor, whose greeting is there to be read.
  void expect_end(bool in_read) {
    auto stream = std::make_unique<Throwing>(connected(), in_read);
    const auto scribe = make_stream_scribe(*there_.system, std::move(stream),
                                           {BaspGuard::First::greeting_of_accepting_side,
                                            /*buffers=*/false, std::make_shared<LogLimits>()});
    ASSERT_TRUE(scribe);
    const auto closed = std::make_shared<std::promise<void>>();
    there_.system->middleman().spawn_broker(watch, scribe, !in_read, closed);
    EXPECT_EQ(closed->get_future().wait_for(kEchoDeadline), std::future_status::ready);
    EXPECT_TRUE(log_.wait_for(
        {"[warning] control: dropped a connection from 127.0.0.1", "the memory is short"}))
        << log_.text();
    expect_unharmed();
  }
};

TEST_F(ThrowingStream, EndsItsConnectionInARead) { expect_end(true); }
TEST_F(ThrowingStream, EndsItsConnectionInAWrite) { expect_end(false); }

}  // namespace throwing_stream_test
}  // namespace grapevine
