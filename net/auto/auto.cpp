#include "net/auto/auto.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "messages/check.hpp"
#include "messages/device/model_vectors.hpp"
#include "net/auto/wires.hpp"
#include "net/inproc/mailbox.hpp"

namespace grapevine {
namespace wires {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<Wire, kWires> kAll = {Wire::shm, Wire::ucx, Wire::tcp};
// It carries the messages between ranks of this process, and the departures of those.
constexpr Wire kLocal = Wire::tcp;

std::size_t index(Wire wire) { return static_cast<std::size_t>(wire); }
std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

// Delivers the messages of all wires to the local ranks: one at a time for each rank, in the order
// of each wire. Thread-safe.
class Desk {
 public:
  explicit Desk(const Placement& placement)
      : placement_(placement), boxes_(placement.process_of.size()) {}

  bool is_local(Rank rank) const { return placement_.is_local(rank); }
  bool is_open(Rank rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return boxes_[index(rank)].inbox != nullptr;
  }

  void open(Rank rank, std::shared_ptr<Inbox> inbox) {
    const std::lock_guard<std::mutex> lock(mutex_);
    boxes_[index(rank)].inbox = std::move(inbox);
  }

  void close(Rank rank) {
    Mailbox closed;  // destroyed after the lock is released
    const std::lock_guard<std::mutex> lock(mutex_);
    closed.inbox.swap(boxes_[index(rank)].inbox);
    closed.items.swap(boxes_[index(rank)].items);
  }

  void put(Rank rank, Mailbox::Item item) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      Mailbox& box = boxes_[index(rank)];
      if (box.inbox == nullptr) return;  // it has left
      box.items.push_back(std::move(item));
    }
    for (;;) {
      try {
        return deliver_pending(mutex_, boxes_[index(rank)]);
      } catch (const std::exception& e) {
        spdlog::error("rank {}: the inbox failed: {}", rank, e.what());
      }
    }
  }

 private:
  const Placement placement_;
  std::mutex mutex_;
  std::vector<Mailbox> boxes_;  // guarded by mutex_, by rank
};

// A process may return over another wire after a message to it was prepared, and before it is sent.
void bring_to_host(Payload& payload) {
  const auto bring = [](FrozenTensor& t) {
    if (!t.device().is_cpu()) t = t.on_host();
  };
  each_model_vector(payload, bring);
  each_packed_on_device(payload, bring);
}

// The inbox of one local rank at one wire.
class Proxy final : public Inbox {
 public:
  Proxy(std::shared_ptr<Desk> desk, Rank rank, Wire wire)
      : desk_(std::move(desk)), rank_(rank), wire_(wire) {}

  void deliver(Envelope envelope) override { desk_->put(rank_, std::move(envelope)); }
  // Each wire knows of the departure of a local rank; of a remote one only the wire that it used.
  void peer_down(Rank peer, const std::string& reason) override {
    if (desk_->is_local(peer) && wire_ != kLocal) return;
    desk_->put(rank_, PeerDown{peer, reason});
  }

 private:
  const std::shared_ptr<Desk> desk_;
  const Rank rank_;
  const Wire wire_;
};

class AutoTransport final : public RemoteTransport {
 public:
  explicit AutoTransport(AutoParts parts) {
    parts_[index(Wire::shm)] = std::move(parts.shm);
    parts_[index(Wire::ucx)] = std::move(parts.ucx);
    parts_[index(Wire::tcp)] = std::move(parts.tcp);
    GRAPEVINE_CHECK(part(kLocal) != nullptr, "--transport auto without tcp");
  }

  std::string address() const override { return pack_addresses(own_addresses()); }
  using RemoteTransport::connect;
  Expected<void> connect(const std::vector<std::string>& addresses, const Placement& placement,
                         Duration timeout, const ConnectOptions& options) override;
  void process_down(std::int32_t process) override {
    for (const auto& part : parts_)
      if (part != nullptr) part->process_down(process);
  }
  void expect_process(std::int32_t process, const std::string& host,
                      const std::string& address) override;
  bool is_up(std::int32_t process) const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [&](const auto& part) { return part != nullptr && part->is_up(process); });
  }
  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) override;
  void detach(Rank rank) override;
  void send(Envelope envelope) override;
  TransportCounters counters(Rank rank) const override;
  bool by_reference(Rank from, Rank to) const override {
    return part(kLocal)->by_reference(from, to);
  }
  bool takes_device_memory(Rank from, Rank to) const override {
    if (desk_ == nullptr) return false;
    const Wire wire = wire_to(placement_.process_of[index(to)]);
    return part(wire)->takes_device_memory(from, to);
  }
  std::uint64_t queued_bytes() const override {
    std::uint64_t bytes = 0;
    for (const auto& part : parts_) bytes += part == nullptr ? 0 : part->queued_bytes();
    return bytes;
  }
  std::int32_t world_size() const override { return part(kLocal)->world_size(); }

 private:
  using Addresses = std::vector<WireAddresses>;

  RemoteTransport* part(Wire wire) const { return parts_[index(wire)].get(); }
  WireAddresses own_addresses() const;
  Expected<void> choose(const Addresses& addresses, const Placement& placement,
                        const ConnectOptions& options);
  Expected<void> connect_over(Wire wire, const Addresses& addresses, const Placement& placement,
                              Duration timeout, const ConnectOptions& options);
  Wire wire_to(std::int32_t process) const;

  std::array<std::unique_ptr<RemoteTransport>, kWires> parts_;
  // Constant from connect() on.
  Placement placement_;
  std::shared_ptr<Desk> desk_;
  // By process, from connect() on: the wire to it. It may change when the process returns.
  mutable std::vector<std::atomic<Wire>> wire_of_;
};

// Over whichever wire it chooses. Over ucx this process connects: only where it chooses as well.
void AutoTransport::expect_process(std::int32_t process, const std::string& host,
                                   const std::string& address) {
  for (const Wire wire : {Wire::shm, Wire::tcp})
    if (part(wire) != nullptr) part(wire)->expect_process(process, host, {});
  const auto addresses = unpack_addresses(address);
  if (part(Wire::ucx) == nullptr || !addresses || addresses->count(Wire::ucx) == 0) return;
  const auto chosen = choose_wire(own_addresses(), *addresses);
  if (chosen && *chosen == Wire::ucx)
    part(Wire::ucx)->expect_process(process, host, addresses->at(Wire::ucx));
}

WireAddresses AutoTransport::own_addresses() const {
  WireAddresses addresses;
  for (const Wire wire : kAll)
    if (part(wire) != nullptr) addresses[wire] = part(wire)->address();
  return addresses;
}

Expected<void> AutoTransport::connect(const std::vector<std::string>& addresses,
                                      const Placement& placement, Duration timeout,
                                      const ConnectOptions& options) {
  GRAPEVINE_CHECK(desk_ == nullptr, "connect() is for once");
  if (static_cast<std::int32_t>(addresses.size()) != placement.processes())
    return bad_input(fmt::format("{} addresses for {} processes: give one each", addresses.size(),
                                 placement.processes()));
  placement_ = placement;
  desk_ = std::make_shared<Desk>(placement);
  Addresses unpacked(addresses.size());
  for (std::int32_t p = 0; p < placement.processes(); ++p) {
    if (p == placement.own_process || options.is_absent(p)) continue;
    auto parts = unpack_addresses(addresses[index(p)]);
    if (!parts)
      return Error{parts.error().code,
                   fmt::format("cannot reach process {} (host {}): {}", p,
                               placement.host_of[index(p)], parts.error().message)};
    unpacked[index(p)] = *std::move(parts);
  }
  if (auto chosen = choose(unpacked, placement, options); !chosen) return chosen;
  // All processes in this order, so that none waits for one that waits for it over another wire.
  const Clock::time_point deadline = Clock::now() + timeout;
  for (const Wire wire : kAll) {
    const auto left = std::max<Duration>(deadline - Clock::now(), Duration::zero());
    if (auto connected = connect_over(wire, unpacked, placement, left, options); !connected)
      return connected;
  }
  return {};
}

Expected<void> AutoTransport::choose(const Addresses& addresses, const Placement& placement,
                                     const ConnectOptions& options) {
  wire_of_ = std::vector<std::atomic<Wire>>(addresses.size());
  const WireAddresses own = own_addresses();
  std::map<std::int32_t, Wire> chosen;
  for (std::int32_t p = 0; p < placement.processes(); ++p) {
    wire_of_[index(p)] = kLocal;
    if (p == placement.own_process || options.is_absent(p)) continue;
    const Expected<Wire> wire = choose_wire(own, addresses[index(p)]);
    if (!wire && options.is_lost(p)) continue;
    if (!wire)
      return Error{wire.error().code,
                   fmt::format("cannot reach process {} (host {}): {}", p,
                               placement.host_of[index(p)], wire.error().message)};
    wire_of_[index(p)] = chosen[p] = *wire;
  }
  if (!chosen.empty()) spdlog::info("{}", describe(placement.own_process, chosen));
  return {};
}

// For this wire, processes that use another wire are absent: they may connect to it later.
Expected<void> AutoTransport::connect_over(Wire wire, const Addresses& addresses,
                                           const Placement& placement, Duration timeout,
                                           const ConnectOptions& options) {
  if (part(wire) == nullptr) return {};
  ConnectOptions own = options;
  std::vector<std::string> of_wire(addresses.size());
  for (std::int32_t p = 0; p < placement.processes(); ++p) {
    if (p == placement.own_process) continue;
    const auto found = addresses[index(p)].find(wire);
    const bool used = found != addresses[index(p)].end() && wire_of_[index(p)] == wire;
    if (used)
      of_wire[index(p)] = found->second;
    else if (!own.is_absent(p))
      own.absent.push_back(p);
  }
  return part(wire)->connect(of_wire, placement, timeout, own);
}

Expected<void> AutoTransport::attach(Rank rank, std::shared_ptr<Inbox> inbox) {
  GRAPEVINE_CHECK(inbox != nullptr, "attach of rank ", rank, " without an inbox");
  if (desk_ == nullptr)
    return bad_input(fmt::format("cannot attach rank {} before connect() succeeds", rank));
  const bool known = rank >= 0 && rank < placement_.world_size() && desk_->is_local(rank);
  bool opened = false;
  for (const Wire wire : {kLocal, Wire::shm, Wire::ucx}) {
    if (part(wire) == nullptr) continue;
    // The wires deliver waiting messages at once: the desk must be open. A rank that is refused has
    // an open desk already, or none.
    if (known && !opened && !desk_->is_open(rank)) {
      desk_->open(rank, inbox);
      opened = true;
    }
    if (auto attached = part(wire)->attach(rank, std::make_shared<Proxy>(desk_, rank, wire));
        !attached) {
      if (opened) desk_->close(rank);
      return attached;
    }
  }
  return {};
}

void AutoTransport::detach(Rank rank) {
  for (const auto& part : parts_)
    if (part != nullptr) part->detach(rank);
  desk_->close(rank);
}

// A process that has returned may have done so over another wire.
Wire AutoTransport::wire_to(std::int32_t process) const {
  const Wire last = wire_of_[index(process)];
  if (process == placement_.own_process || part(last)->is_up(process)) return last;
  for (const Wire wire : kAll)
    if (part(wire) != nullptr && part(wire)->is_up(process)) {
      wire_of_[index(process)] = wire;
      return wire;
    }
  return last;
}

void AutoTransport::send(Envelope envelope) {
  GRAPEVINE_CHECK(desk_ != nullptr, "a transport is used before connect()");
  GRAPEVINE_CHECK(envelope.to >= 0 && envelope.to < placement_.world_size(), "rank ", envelope.to,
                  " in a world of ", placement_.world_size());
  RemoteTransport* const wire = part(wire_to(placement_.process_of[index(envelope.to)]));
  if (!wire->by_reference(envelope.from, envelope.to) &&
      !wire->takes_device_memory(envelope.from, envelope.to))
    bring_to_host(envelope.payload);
  wire->send(std::move(envelope));
}

TransportCounters AutoTransport::counters(Rank rank) const {
  TransportCounters sum;
  for (const auto& part : parts_) {
    if (part == nullptr) continue;
    const TransportCounters one = part->counters(rank);
    sum.messages_sent += one.messages_sent;
    sum.bytes_sent += one.bytes_sent;
    sum.messages_dropped += one.messages_dropped;
  }
  return sum;
}

}  // namespace
}  // namespace wires

std::unique_ptr<RemoteTransport> make_auto_transport(AutoParts parts) {
  return std::make_unique<wires::AutoTransport>(std::move(parts));
}

}  // namespace grapevine
