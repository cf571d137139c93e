// WiringChange: another wiring takes the place of the present one while the ranks train.
//
//   asked      every rank says whether it can make the new roles; one that cannot ends the change
//   draining   a change of members (ViewChange) of the same members begins
//   merging    its view is installed: the role of every rank is CommonModel, and says when it is
//              done
//   beginning  another change of members begins, whose view has the new roles
//
// Where a role is made of others (RoleType::changes_by_mean), each change of members is one of
// these, without questions. Until `merging` nothing has changed. A loss in between begins the view
// in progress anew.
#pragma once
#include <cstdint>
#include <set>
#include <string>

#include "actors/protocol/supervisor.hpp"
#include "actors/run/control/live_settings.hpp"

namespace grapevine {

// Not thread-safe.
class WiringChange {
 public:
  enum class Next { wait, refuse, begin };

  bool in_progress() const { return stage_ != Stage::none; }
  bool asks() const { return stage_ == Stage::asked; }
  // All ranks have the common model: the view to come has the new roles.
  bool begins() const { return stage_ == Stage::beginning; }
  // The newest one, 0: none yet.
  std::int64_t number() const { return number_; }
  // All settings that count then, and those of them that are new.
  const LiveSettings& settings() const { return settings_; }
  const LiveSettings& changed() const { return changed_; }

  // REQUIRES: none is in progress.
  // `of_nodes`: the present wiring is one of nodes, whose ranks learn from what their heads ask for
  // next whether their gradients count; one more view of the same members is for that.
  void ask(LiveSettings settings, LiveSettings changed, std::set<Rank> ranks,
           bool of_nodes = false);
  // Begins a change that no rank can refuse: the present wiring among other members, or with other
  // numbers. REQUIRES: none is in progress.
  void begin(LiveSettings settings, LiveSettings changed);
  // An answer of a rank. Next::refuse: why() says what the rank has said.
  Next add(const SettingsChecked& checked);
  // The ranks whose answer is missing, ascending.
  const std::set<Rank>& missing() const { return missing_; }
  const std::string& why() const { return why_; }
  void cancel() { stage_ = Stage::none; }

  // A change of members is complete: what its view is. `behind`: some rank has to take the model of
  // another first.
  ViewKind install(bool behind, const std::vector<Rank>& members);
  // A rank has the common model in that view; `newest`: the view in which all work. True where all
  // have it: another change of members is to begin.
  bool add(const ModelShared& shared, std::int64_t newest);

 private:
  enum class Stage { none, asked, draining, merging, beginning };
  friend struct ViewFingerprint;  // of a test that visits all states

  Stage stage_ = Stage::none;
  std::int64_t number_ = 0;
  LiveSettings settings_, changed_;
  std::set<Rank> missing_;
  std::string why_;
  bool of_nodes_ = false;
};

}  // namespace grapevine
