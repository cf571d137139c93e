#include "actors/run/peer/stager.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "messages/codec.hpp"
#include "messages/device/model_vectors.hpp"
#include "messages/text/exception_line.hpp"
#include "net/device_memory.hpp"

namespace grapevine {
namespace {

// Pinned at most: the messages of a few rounds that the links have not taken yet, the ring that
// uploads go through, and vectors too small for it. What exceeds it is copied more slowly.
constexpr std::size_t kStagedModels = 3;
constexpr std::size_t kStagedSmall = std::size_t{64} << 20;

// On the actor's thread. A thread on other CPUs is slower, but copies the same.
void bind_thread_of(const StagerConfig& config) {
  if (config.cpus.empty()) return;
  if (const auto bound = bind_thread(config.cpus); !bound)
    spdlog::info("rank {}: a stager's thread is not bound to CPUs: {}", config.rank,
                 bound.error().message);
}

std::unique_ptr<Transfers> transfers_of(const StagerConfig& config) {
  const std::size_t pinned = kStagedModels * StagingPool::block_bytes(config.model_bytes) +
                             Transfers::kRingBytes + kStagedSmall;
  return std::make_unique<Transfers>(config.device, pinned, config.timeout);
}

}  // namespace

template <class Work, class Text>
bool StagerState::succeeds(const LocalPeerActor& peer, Work work, Text what) {
  Expected<void> done;
  try {
    done = work();
  } catch (...) {
    done = Error{Errc::failed, exception_line(std::current_exception())};
  }
  if (!done)
    caf::anon_send(
        peer, StagingFailed{{done.error().code, fmt::format("rank {}: {}: {}", config.rank, what(),
                                                            done.error().message)}});
  return done.ok();
}

template <class Copies>
bool StagerState::copying_succeeds(const LocalPeerActor& peer, Copies copies) {
  return succeeds(peer, std::move(copies), [this] {
    return "a message between " + config.device->device().str() + " and the host's memory";
  });
}

Expected<void> StagerState::make_ready(Envelope& envelope) {
  if (config.transport->takes_device_memory(envelope.from, envelope.to) && !has_backlog()) {
    const std::vector<FrozenTensor> payload = payload_of(envelope);
    const FrozenTensor* const only = only_tensor(payload);
    if (only != nullptr && transfers->is_resident(*only)) return wait_for(*only);
  }
  return copy_to_host(envelope.payload);
}

// A message in the device's memory holds that until the link has taken it: beyond some models,
// those for slow links wait in the host's memory instead, as the worker needs the device's.
bool StagerState::has_backlog() const {
  return config.transport->queued_bytes() > kStagedModels * config.model_bytes + kStagedSmall;
}

// The transport reads the memory in no stream, so that no event would hold it back.
Expected<void> StagerState::wait_for(const FrozenTensor& written) {
  const auto scope = config.device->enter(Stream::download);
  written.read();  // the stream waits for the one that wrote it
  return config.device->host_wait(config.device->record(Stream::download), config.timeout);
}

Expected<void> StagerState::copy_to_host(Payload& payload) {
  std::vector<std::pair<FrozenTensor*, at::Tensor>> down;
  const auto download = [&](FrozenTensor& t) {
    if (!t.device().is_cpu()) down.emplace_back(&t, transfers->download(t));
  };
  each_model_vector(payload, download);
  each_packed_on_device(payload, download);
  if (down.empty()) return {};
  if (auto here = transfers->finish(); !here) return here;
  for (auto& [vector, host] : down) *vector = FrozenTensor::freeze(std::move(host));
  return {};
}

// Packed vectors stay where they are: their receiver checks them there before it unpacks them.
Expected<void> StagerState::copy_to_device(Payload& payload) {
  each_model_vector(payload, [&](FrozenTensor& t) {
    if (!transfers->is_resident(t)) t = transfers->send_to_device(t);
  });
  return {};
}

OutgoingStagerActor::behavior_type outgoing_stager(
    OutgoingStagerActor::stateful_pointer<StagerState> self, StagerConfig config) {
  StagerState& state = self->state;
  state.config = std::move(config);
  bind_thread_of(state.config);
  state.transfers = transfers_of(state.config);
  return {[self, &state](Envelope& envelope) {
            const auto peer = caf::actor_cast<LocalPeerActor>(self->current_sender());
            if (!state.copying_succeeds(peer, [&] { return state.make_ready(envelope); })) return;
            const auto send = [&]() -> Expected<void> {
              state.config.transport->send(std::move(envelope));  // may copy, too: auto.cpp
              return {};
            };
            state.succeeds(peer, send, [] { return "a message could not be sent"; });
          },
          [](Ping) { return Pong{}; }};
}

IncomingStagerActor::behavior_type incoming_stager(
    IncomingStagerActor::stateful_pointer<StagerState> self, StagerConfig config,
    LocalPeerActor peer, OutgoingStagerActor outgoing) {
  StagerState& state = self->state;
  state.config = std::move(config);
  bind_thread_of(state.config);
  state.transfers = transfers_of(state.config);
  self->link_to(peer);
  return {[&state, peer](Envelope& envelope) {
            const bool is_here =
                state.config.transport->by_reference(envelope.from, state.config.rank);
            const auto copy = [&] { return state.copy_to_device(envelope.payload); };
            if (is_here || state.copying_succeeds(peer, copy))
              caf::anon_send(peer, std::move(envelope));
          },
          [self, peer, outgoing](PeerLost& lost) {
            self->request(outgoing, caf::infinite, Ping{})
                .then([peer, lost](Pong) { caf::anon_send(peer, lost); },
                      [](const caf::error&) {});  // the peer has ended
          }};
}

}  // namespace grapevine
