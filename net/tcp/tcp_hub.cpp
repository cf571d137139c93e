#include "net/tcp/tcp_hub.hpp"

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "messages/check.hpp"
#include "messages/text/exception_line.hpp"
#include "net/loss_reason.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine::tcp {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kGreetingTimeout = 10s;
constexpr Clock::duration kStallCheck = 20ms;
// Connections without an accepted proof.
constexpr std::ptrdiff_t kMaxUnauthenticated = 256;

}  // namespace

// ---- connections

void Hub::accept() {
  listener_.accept([this](FileDescriptor socket) { on_connection(std::move(socket)); });
}

void Hub::start(std::shared_ptr<RankRouter> router, std::shared_ptr<Links> links) {
  router_ = std::move(router);
  links_ = std::move(links);
  limits_ = options_.limits;
  limits_.world_size = router_->placement().world_size();
  last_beat_ = Clock::now();
  if (options_.heartbeat > Duration::zero()) after(options_.heartbeat, [this] { beat(); });
  const auto all = connections_;
  for (const auto& c : all)
    if (c->state() == Connection::State::held) answer(*c);
}

void Hub::adopt(std::unique_ptr<Stream> stream, std::int32_t process) {
  if (finished_) return;
  GRAPEVINE_CHECK(router_ != nullptr && process >= 0 &&
                      process < router_->placement().processes() &&
                      process != router_->placement().own_process,
                  "a connection to process ", process);
  open(add(std::move(stream)), process);
}

// A lack of memory or descriptors ends this one: the others stay, and further ones are accepted.
void Hub::on_connection(FileDescriptor socket) {
  try {
    greet(std::move(socket));
  } catch (const std::exception&) {
    const std::string why = exception_line(std::current_exception());
    if (const auto more = dropped_.admit(why))
      spdlog::warn("tcp: dropped a connection: {}{}", why, *more);
  }
}

// Until start() no proof can be checked, and those that have sent one wait for as long as that
// takes: the oldest of them gives way, since anyone can send such bytes. A process dials again.
// Without one that waits there is no room: the greetings of the others are limited in time.
bool Hub::make_room() {
  std::ptrdiff_t unauthenticated = 0;
  std::shared_ptr<Connection> oldest;
  for (const auto& c : connections_) {
    unauthenticated += !c->is_open();
    if (c->state() != Connection::State::held) continue;
    if (oldest == nullptr || c->last_received() < oldest->last_received()) oldest = c;
  }
  if (unauthenticated < kMaxUnauthenticated) return true;
  if (oldest == nullptr) return false;
  end(*oldest, "it gave way to a new one: there are too many unauthenticated connections");
  return true;
}

void Hub::greet(FileDescriptor socket) {
  const bool has_room = make_room();
  Connection& c = add(options_.tls == nullptr ? make_plain_stream(std::move(socket))
                                              : options_.tls->accepted(std::move(socket)));
  if (!has_room) return end(c, "there are too many unauthenticated connections");
  try {
    c.await_greeting(kGreetingTimeout);
  } catch (const std::exception&) {
    erase(c);
    throw;
  }
}

Connection& Hub::add(std::unique_ptr<Stream> stream) {
  return **connections_.insert(std::make_shared<Connection>(loop_, std::move(stream), *this)).first;
}

Connection* Hub::find_process(std::int32_t process) {
  for (const auto& c : connections_)
    if (c->is_open() && c->process() == process) return c.get();
  return nullptr;
}

// A process of another version gets an answer too, which names that of this one.
void Hub::on_hello(Connection& c, const std::byte* data) {
  const Expected<Hello> hello = decode_hello(data);
  if (is_of_this_protocol(data)) {
    const Hello own = make_hello();
    c.nonces.listener = own.nonce;
    c.outbox().add({encode_hello(own), {}});
    c.outbox().pump_all();
  }
  if (!hello) return end(c, hello.error().message);
  c.nonces.dialler = hello->nonce;
}

void Hub::on_proof(Connection& c, const std::byte* data) {
  const Expected<Proof> proof = decode_proof(data);
  if (!proof) return end(c, proof.error().message);
  if (proof->refusal != Refusal::none) return end(c, "its greeting is damaged");
  c.proof = *proof;
  if (router_ != nullptr) answer(c);  // else start() does
}

void Hub::answer(Connection& c) {
  const Proof own = links_->answer(c.proof, c.nonces);
  c.outbox().add({encode_proof(own), {}});
  if (own.refusal == Refusal::none) return open(c, c.proof.process);
  c.outbox().pump_all();
  end(c, links_->reason(own.refusal, c.proof));
}

// Messages that wait for an earlier connection of the process are dropped first. The answer to a
// greeting leaves last: a process that has it may be sent to at once, by any thread.
void Hub::open(Connection& c, std::int32_t process) {
  routes_.send(*router_);
  c.open(process, *router_, limits_, pool_);
  routes_.set(process, {c.shared_from_this(), &c.outbox()});
  if (links_->open(process)) router_->process_up(process);
  c.outbox().pump_all();
}

template <class F>
void Hub::after(Clock::duration time, F f) {
  timer_.expires_after(time);
  timer_.async_wait([f = std::move(f)](std::error_code cancelled) {
    if (!cancelled) f();
  });
}

void Hub::beat() {
  if (finished_) return;
  const Clock::time_point now = Clock::now();
  // This process itself may have been suspended: then data of the others needs time to arrive.
  const bool late = now - last_beat_ > 2 * options_.heartbeat;
  last_beat_ = now;
  std::vector<std::shared_ptr<Connection>> silent;
  for (const auto& c : connections_) {
    if (!c->is_open()) continue;
    if (late) c->count_as_received(now);
    if (now - c->last_received() > options_.heartbeat_timeout) silent.push_back(c);
    if (c->outbox().is_sent()) c->outbox().add({encode_control({Control::ping, 0}), {}});
    c->outbox().pump_all();
  }
  for (const auto& c : silent) end(*c, silence());
  after(options_.heartbeat, [this] { beat(); });
}

// ---- the end

void Hub::on_closed(Connection& c) {
  const bool open = c.is_open();
  const std::int32_t process = c.process();
  erase(c);
  if (open) lose(process, "the connection was closed");
  check_finished();
}

void Hub::drop(std::int32_t process) {
  Connection* const found = find_process(process);
  if (found == nullptr) return lose(process, "");
  const std::shared_ptr<Connection> c = found->shared_from_this();
  c->read_what_has_arrived();
  if (c->is_open()) end(*c, "");
}

void Hub::expect(std::int32_t process) {
  if (!finished_) links_->expect(process);
}

// Ends the connection because of the other side; an empty `why`: because of a report from
// elsewhere. `c` is destroyed.
void Hub::end(Connection& c, const std::string& why) {
  const bool open = c.is_open();
  const std::int32_t process = c.process();
  if (process < 0)
    if (const auto more = dropped_.admit(why))
      spdlog::warn("tcp: dropped a connection from {}: {}{}", c.peer_address(), why, *more);
  erase(c);
  if (open) lose(process, why);
  check_finished();
}

void Hub::erase(Connection& c) {
  const std::shared_ptr<Connection> last = c.shared_from_this();
  connections_.erase(last);
  c.close();
}

void Hub::lose(std::int32_t process, const std::string& why) {
  routes_.set(process, nullptr);
  links_->lose(process);
  // The loss of a process whose ranks have all left has no effect.
  if (!finished_ && router_->process_left(process, why) && !why.empty())
    spdlog::warn("tcp: the link to {} is lost: {}", links_->name(process), why);
}

// No thread may wait for an event loop that has failed.
void Hub::fail(const std::exception_ptr& problem) {
  try {
    const std::string why = exception_line(problem);
    spdlog::error("tcp: all connections end: {}", why);
    for (const auto& c : connections_) c->close();
    connections_.clear();
    listener_.close();
    if (router_ == nullptr) return;
    for (std::int32_t p = 0; p < router_->placement().processes(); ++p)
      if (p != router_->placement().own_process) lose(p, kErrorHere + why);
  } catch (const std::exception&) {
    spdlog::error("tcp: {}", exception_line(std::current_exception()));
  }
}

void Hub::finish(std::function<void()> finished) {
  finished_ = std::move(finished);
  finish_by_ = Clock::now() + options_.flush_limit;
  listener_.close();
  if (router_ != nullptr) routes_.send(*router_);
  const auto all = connections_;
  for (const auto& c : all) {
    if (c->is_open())
      c->drain();
    else
      erase(*c);
  }
  after(kStallCheck, [this] { check_stalls(); });
  check_finished();
}

void Hub::check_stalls() {
  const Clock::time_point now = Clock::now();
  std::vector<std::shared_ptr<Connection>> stalled;
  for (const auto& c : connections_)
    if (now > finish_by_ || now - c->outbox().progress() > options_.flush_timeout)
      stalled.push_back(c);
  for (const auto& c : stalled) {
    spdlog::warn("tcp: {} stopped reading; pending data was discarded", links_->name(c->process()));
    erase(*c);
  }
  if (!connections_.empty()) after(kStallCheck, [this] { check_stalls(); });
  check_finished();
}

void Hub::check_finished() {
  if (!finished_ || !connections_.empty()) return;
  timer_.cancel();
  finished_();
}

std::string Hub::silence() const {
  return "no data arrived from it for " + silence_text(options_.heartbeat_timeout);
}

}  // namespace grapevine::tcp
