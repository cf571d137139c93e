// SavedView: the members of a run in a checkpoint, where they had changed since its start; and
// those that begin a run in which places are vacant.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "algorithms/horizon.hpp"
#include "algorithms/state_dict.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "algorithms/wiring/plan.hpp"
#include "messages/gradient.hpp"

namespace grapevine {

// A view as each of its ranks saves it.
struct SavedView {
  std::int64_t number = 0;   // of the view: see ViewChange
  TrainingRanks ranks;       // of its roles, but the servers; some may be lost since
  Step first_step = 0;       // with which these took over,
  double first_epoch = 0;    // and the training behind it
  Step later_end = 0;        // so much later than planned they end
  bool by_samples = false;   // of a run by --epochs: later_end is not one of --steps
  Deal deal;                 // of the batches of this rank, if it trains; `ranks`: of the members
  bool deal_is_new = false;  // it begins with the next step
};

// What a rank's state has under "view.".
StateDict save(const SavedView& view);
// From the state of `rank`, which trains or is a server; nothing where the roles were those of the
// start, also where ranks are lost since. Errors (bad_input): entries that no run saves.
Expected<std::optional<SavedView>> load_view(const StateDict& rank_state, Rank rank,
                                             bool trains = true);

// Of the members, in a run that is planned for `ranks`. Where the run before was one by --epochs,
// and this one is by --steps, it ends at these: the members took other steps to the same end.
Horizon horizon_of(const SavedView& view, const Horizon& planned, std::int32_t ranks);

// `planned`: for `ranks`. Errors: of parts_among().
Expected<std::shared_ptr<const SharedParts>> parts_of_view(const SharedParts& planned,
                                                           const SavedView& view,
                                                           std::int32_t ranks);

}  // namespace grapevine
