// All that processes send each other over CAF, but the messages between ranks (codec).
#pragma once
#include <cstddef>
#include <tuple>
#include <type_traits>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include "actors/cluster/node_protocol.hpp"
#include "actors/protocol.hpp"

namespace grapevine::fuzzing {

// In the input of the fuzzer, a message is named by its place here.
using ControlMessages = std::tuple<
    StartTraining, PeerLost, LinkLost, ResumeFrom, ProcessLost, Ping, Pong, AskClock, ClockReading,
    TakeSnapshot, Collect, RankFinished, RankFailed, StopRequested, CheckpointRequested,
    ProcessClosed, StateStored, SnapshotRefused, RankReport, RankFigures, ModelOffer, RunEnded,
    Join, Admission, Ready, StepReport, StartRanks, SignalRanks, PoolClosed, JobOutput, JobEnded,
    JobEndHeard, Enlist, Enlisted, LeavePool, Left, RankOutput, RankExited, SubmitJob, JobAccepted,
    SignalJob, OutputWritten, Greet, Greeting, QueryWaits, WaitReport, PartStored, CheckSettings,
    SettingsChecked, ModelShared, ExpectProcess, HoldForView, AskTraffic, Traffic, CloseView,
    ViewClosed, InstallView, AskJob, JobOffer, SendModel, ModelSent, ReleaseModel, AskAddresses,
    Addresses, AskControl, ControlPlace, AskChallenge, Challenge, ViewCounts>;

template <class Message, std::size_t I = 0>
constexpr std::size_t place_of() {
  if constexpr (std::is_same_v<Message, std::tuple_element_t<I, ControlMessages>>)
    return I;
  else
    return place_of<Message, I + 1>();
}

// One thread, no network: the actors that messages name are those of this process. It is never
// destroyed, since CAF's own objects are before it.
inline caf::actor_system& actor_system() {
  static caf::actor_system* const system = [] {
    auto* config = new caf::actor_system_config;
    config->set("scheduler.max-threads", std::size_t{1});
    return new caf::actor_system(*config);
  }();
  return *system;
}

}  // namespace grapevine::fuzzing
