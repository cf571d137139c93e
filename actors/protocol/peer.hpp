// The messages to a Peer, and its interface.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/protocol/view.hpp"
#include "actors/protocol_wire.hpp"
#include "actors/record/wait_report.hpp"
#include "algorithms/env.hpp"
#include "messages/caf_types.hpp"

namespace grapevine {

struct StartTraining {};
struct TimerFired {
  TimerId id = 0;
  std::int64_t view = 0;  // whose role has set it
};
// Records for the tracer have waited long enough.
struct FlushTrace {};
// An injected stall of the messages from this rank is over.
struct StallOver {
  Rank from = 0;
};
// From the transport, after the messages that had arrived before; from the supervisor only where a
// rank's actor has died and its process has not.
struct PeerLost {
  Rank peer = 0;
  std::string reason;  // why the link to it broke; empty: it left, or the supervisor knows
};
// Take part in consistent cut `id` (Chandy & Lamport 1985).
struct TakeSnapshot {
  std::int64_t id = 0;
  std::string shards = {};  // the folder for the states of other processes; see ShardWriter
  Rank receiver = 0;        // of those that do not share it: a rank of process 0 that lives
};
// Answer with a RankReport; without the model only to check whether messages are still in flight.
struct Collect {
  bool with_model = true;
};
// The answer of process 0 to the parts of a state: so many bytes are stored.
struct PartStored {
  std::int64_t id = 0;
  Rank rank = 0;  // whose state it is
  std::int64_t bytes = 0;
};

// Can this rank make the roles of these settings? Answer with SettingsChecked.
struct CheckSettings {
  std::int64_t number = 0;                      // of the change: see WiringChange
  std::map<std::string, std::string> settings;  // LiveSettings
};
struct SettingsChecked {
  std::int64_t number = 0;
  Rank rank = 0;
  std::string why;  // it cannot; empty: it can
};

// Answer with a WaitReport (actors/record/wait_report.hpp).
struct QueryWaits {
  std::int64_t question = 0;
};

using WorkerActor = caf::typed_actor<caf::reacts_to<GradientRequest>>;

using PeerActor = caf::typed_actor<
    caf::reacts_to<StartTraining>, caf::reacts_to<GradientPart>, caf::reacts_to<Gradient>,
    caf::reacts_to<Envelope>, caf::reacts_to<TimerFired>, caf::reacts_to<PeerLost>,
    caf::reacts_to<TakeSnapshot>, caf::reacts_to<Collect>, caf::reacts_to<FlushTrace>,
    caf::reacts_to<StallOver>, caf::reacts_to<HoldForView>, caf::reacts_to<AskTraffic>,
    caf::reacts_to<CloseView>, caf::reacts_to<ViewCounts>, caf::reacts_to<InstallView>,
    caf::reacts_to<QueryWaits>, caf::reacts_to<PartStored>, caf::reacts_to<CheckSettings>>;

// ---- how they are written ----

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StartTraining&) {
  return f(caf::meta::type_name("grapevine::StartTraining"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, PeerLost& m) {
  return f(caf::meta::type_name("grapevine::PeerLost"), m.peer, m.reason);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TakeSnapshot& m) {
  return f(caf::meta::type_name("grapevine::TakeSnapshot"), m.id, m.shards, m.receiver);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Collect& m) {
  return f(caf::meta::type_name("grapevine::Collect"), m.with_model);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, QueryWaits& m) {
  return f(caf::meta::type_name("grapevine::QueryWaits"), m.question);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WaitReport& m) {
  // The numbers of 8,192 operations or parts are exact where they differ by less than 4,096.
  constexpr std::size_t kMostBytes = std::size_t{12} << 10;
  static_assert(kMostPacked <= 8 * kMostBytes, "a bit for each message");
  PackedLists waits([&m](ListArchive& a) { return a.within(m.waits, kMostBytes); });
  return f(caf::meta::type_name("grapevine::WaitReport"), m.question, m.rank, m.step, m.worker,
           m.computing, m.computing_ns, m.waiting_ns, m.view, m.holds_messages_back, m.queued_bytes,
           waits.bytes, caf::meta::load_callback([&waits] { return waits.restore(); }));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CheckSettings& m) {
  return f(caf::meta::type_name("grapevine::CheckSettings"), m.number, m.settings);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SettingsChecked& m) {
  return f(caf::meta::type_name("grapevine::SettingsChecked"), m.number, m.rank, m.why);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, PartStored& m) {
  return f(caf::meta::type_name("grapevine::PartStored"), m.id, m.rank, m.bytes);
}

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TimerFired)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::FlushTrace)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StallOver)
