// The boundary to other processes: the checks of a message before an actor uses it. A program that
// reaches a port of a process can send its actors any message that exists; and a process of the run
// whose memory is short may lose the contents of a message.
#pragma once
#include <cstdint>
#include <string>

#include "actors/protocol/rendezvous.hpp"
#include "messages/expected.hpp"
#include "messages/text/log_limit.hpp"

namespace grapevine {

// The run that messages must fit.
struct World {
  std::int32_t processes = 1;
  std::int32_t ranks = 1;        // servers and spare ones included
  std::int32_t servers = 0;      // the ranks after those that train
  std::int64_t parameters = -1;  // d; -1: not known, and not checked
  std::int64_t buffers = -1;     // b; -1: not known, and not checked
  std::int32_t spare = 0;        // of the ranks, the last: for servers of other wirings

  std::int32_t workers() const { return ranks - servers - spare; }
  bool has_rank(Rank rank) const { return rank >= 0 && rank < ranks; }
};

// Errors: protocol: no rank or process of this run sends that message: it is to be ignored; failed:
// a rank of this run, named by the text, sent an unusable message: the run is to end.
Expected<void> check(const StepReport& report, const World& world);
Expected<void> check(const RankFigures& figures, const World& world);
Expected<void> check(const RankFinished& finished, const World& world);
Expected<void> check(const WaitReport& report, const World& world);
Expected<void> check(const RankSnapshot& snapshot, const World& world);
Expected<void> check(const StateStored& stored, const World& world);
Expected<void> check(const SnapshotRefused& refused, const World& world);
// `with_model`: one was asked for.
Expected<void> check(const RankReport& report, const World& world, bool with_model);
Expected<void> check(const EpochModel& model, const World& world);
Expected<void> check(const ModelOffer& offer, const World& world);
Expected<void> check(const ProcessClosed& closed, const World& world);
Expected<void> check(const PeerLost& lost, const World& world);
Expected<void> check(const TakeSnapshot& take, const World& world);
Expected<void> check(const LinkLost& lost, const World& world);
Expected<void> check(const HoldForView& hold, const World& world);
Expected<void> check(const Traffic& traffic, const World& world);
Expected<void> check(const ViewClosed& closed, const World& world);
Expected<void> check(const CheckSettings& asked, const World& world);
Expected<void> check(const SettingsChecked& checked, const World& world);
Expected<void> check(const ModelShared& shared, const World& world);
Expected<void> check(const ViewCounts& counts, const World& world);
Expected<void> check(const InstallView& view, const World& world);
// Its texts and numbers alone; the rendezvous checks membership in the run.
Expected<void> check(const Join& join);
Expected<void> check(const AskJob& ask);

// Whether an actor uses a checked message, and the handling of errors: those of protocol are
// logged, at a bounded rate.
class Gate {
 public:
  using Time = LogLimit::Clock::time_point;

  // False: the message is to be ignored. `now`: by the clock of the actor. `on_failed(Error)`
  // receives the error that ends the run.
  template <class OnFailed>
  bool admits(const Expected<void>& checked, Time now, OnFailed on_failed) {
    if (checked) return true;
    if (checked.error().code == Errc::protocol)
      ignore(checked.error().message, now);
    else
      on_failed(checked.error());
    return false;
  }
  bool admits(const Expected<void>& checked, Time now) {
    return admits(checked, now, [&](const Error& error) { ignore(error.message, now); });
  }

 private:
  void ignore(const std::string& why, Time now);

  LogLimit limit_;
};

}  // namespace grapevine
