// FinalReports: the models of the ranks at the end of a run, once no message is in flight any more.
#pragma once
#include <cstdint>
#include <map>

#include "actors/protocol/supervisor.hpp"
#include "actors/run/supervision/run_members.hpp"

namespace grapevine {

// All ranks are asked for reports, in rounds. The first rounds carry no models: they count messages
// until nothing is in flight. Reports of one round are of different moments, so one balanced round
// proves nothing: two equal ones do (Mattern 1987, the four counter method). The last round carries
// the models. Sends nothing. Not thread-safe.
class FinalReports {
 public:
  enum class Next {
    wait,        // reports are missing
    ask_later,   // messages may be in flight
    ask_models,  // nothing is in flight: the next round is the last
    complete
  };

  // Messages in flight change no model of the result: the next round is the last.
  void accept_in_flight() { with_models_ = balanced_ = true; }

  // All ranks are asked now: reports of earlier rounds are discarded.
  void begin_round();
  // REQUIRES: in_round().
  void add(RankReport& report);
  void remove(Rank rank) { reports_.erase(rank); }
  // REQUIRES: in_round(). Ends the round once no remaining rank is missing.
  Next evaluate(const RunMembers& members);

  bool in_round() const { return in_round_; }
  bool with_models() const { return with_models_; }
  bool complete() const { return balanced_ && !in_round_; }
  // Whether reports() are of all remaining ranks and have models.
  bool has_models(const RunMembers& members) const { return balanced_ && members.all_in(reports_); }
  const std::map<Rank, RankReport>& reports() const { return reports_; }

 private:
  std::map<Rank, RankReport> reports_;
  bool in_round_ = false;
  std::int64_t last_sent_ = -1;  // messages in all, where all had been received
  bool with_models_ = false;     // this round's reports, or the next one's
  bool balanced_ = false;
};

}  // namespace grapevine
