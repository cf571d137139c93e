// The messages of a change of members: see ViewChange.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <caf/meta/load_callback.hpp>
#include <caf/meta/type_name.hpp>

#include "actors/double_bits.hpp"
#include "actors/protocol/packed_lists.hpp"
#include "algorithms/horizon.hpp"
#include "algorithms/role.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// From now on no timer reaches the role, and no gradient that is not being computed.
struct HoldForView {
  std::int64_t view = 0;       // its number, from 1
  std::vector<Rank> members;   // that train, and the servers, ascending
  std::vector<Rank> arriving;  // of these, that the view before has not, ascending
  bool gradients_end = false;  // those that are being computed reach the role before it closes
};
// Answer with the messages that were sent and received among these ranks.
struct AskTraffic {
  std::int64_t view = 0;
  std::int64_t round = 0;  // of questions
};
struct Traffic {
  std::int64_t view = 0;
  std::int64_t round = 0;
  Rank rank = 0;
  std::int64_t sent = 0, received = 0;
};
// No message is on its way: end what is open.
struct CloseView {
  std::int64_t view = 0;
};
// After Role::close().
struct ViewClosed {
  std::int64_t view = 0;
  Rank rank = 0;
  // The operations that are complete here; kJoins: the rank has no model yet; Role::kFollows: it
  // exchanges nothing.
  std::int64_t operations = 0;
  Step step = 0;
  double epoch = 0;
  double w = 1;                           // of its model
  std::int64_t taken = 0;                 // batches in this view
  std::vector<std::int64_t> counts = {};  // Role::counts()

  static constexpr std::int64_t kJoins = -1;
};
// What the roles of a view are.
enum class ViewKind : std::uint8_t {
  members,       // those of the view before, among other members
  common_model,  // CommonModel, between two wirings
  new_wiring     // those of `settings`, which begin with the common model
};
// Role::counts() of some members of the view that the next InstallView installs. Only where
// RoleType::changes_by_mean.
struct ViewCounts {
  std::int64_t view = 0;
  ClosedCounts counts;

  // In one message: 16 KiB.
  static constexpr std::size_t kMostNumbers = 2048;
};
// In as many messages as they need, of the members once each; none where there are no counts.
inline std::vector<ViewCounts> split_counts(std::int64_t view, const ClosedCounts& counts,
                                            std::size_t most = ViewCounts::kMostNumbers) {
  std::vector<ViewCounts> parts;
  std::size_t filled = 0;
  for (const auto& own : counts) {
    if (parts.empty() || filled + own.second.size() > most) {
      parts.push_back({view, {}});
      filled = 0;
    }
    parts.back().counts.insert(own);
    filled += own.second.size();
  }
  return parts;
}
// Continue among the members.
struct InstallView {
  std::int64_t view = 0;
  ViewKind kind = ViewKind::members;
  std::vector<Rank> members;          // ascending
  Horizon horizon;                    // from the step of the rank that is furthest on
  std::int64_t first_batch = 0;       // of the members, who share the batches from there on
  std::int64_t operations = 0;        // the most that are complete on any rank
  double scale = 1;                   // of x and w, so that all weights add up to their number
  std::int64_t last_cut = 0;          // checkpoints up to it are given up
  std::int64_t elapsed_ns = 0;        // training time so far
  Rank donor = -1;                    // sends its state
  std::vector<Rank> behind, joining;  // to these
  std::vector<Rank> new_servers;      // and to these, which have no slice yet
  std::vector<Rank> heads;            // of the nodes of a hierarchy: see NodeChange; else empty
  std::map<std::string, std::string> settings = {};  // in the place of the job's: LiveSettings
  std::int32_t servers = 0;  // of the wiring: so many of the ranks behind all that train
  bool passes = false;       // another view follows at once: nothing is computed in this one
};

// ---- how they are written ----

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, HoldForView& m) {
  PackedLists ranks([&m](ListArchive& a) { return a(m.members) && a(m.arriving); });
  return f(caf::meta::type_name("grapevine::HoldForView"), m.view, m.gradients_end, ranks.bytes,
           caf::meta::load_callback([&ranks] { return ranks.restore(); }));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, AskTraffic& m) {
  return f(caf::meta::type_name("grapevine::AskTraffic"), m.view, m.round);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Traffic& m) {
  return f(caf::meta::type_name("grapevine::Traffic"), m.view, m.round, m.rank, m.sent, m.received);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CloseView& m) {
  return f(caf::meta::type_name("grapevine::CloseView"), m.view);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ViewClosed& m) {
  DoubleBits reals(m.epoch, m.w);
  return f(caf::meta::type_name("grapevine::ViewClosed"), m.view, m.rank, m.operations, m.step,
           m.taken, m.counts, reals.bits,
           caf::meta::load_callback([&reals] { return reals.restore(); }));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ViewCounts& m) {
  PackedLists counts([&m](ListArchive& a) { return a(m.counts); });
  return f(caf::meta::type_name("grapevine::ViewCounts"), m.view, counts.bytes,
           caf::meta::load_callback([&counts] { return counts.restore(); }));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, InstallView& m) {
  Horizon& h = m.horizon;
  DoubleBits reals(h.steps_per_epoch, h.first_epoch, h.planned_epochs, m.scale);
  PackedLists ranks([&m](ListArchive& a) {
    return a(m.members) && a(m.behind) && a(m.joining) && a(m.new_servers) && a(m.heads);
  });
  return f(caf::meta::type_name("grapevine::InstallView"), m.view, m.kind, h.steps, h.by_samples,
           h.first_step, m.first_batch, m.operations, m.last_cut, m.elapsed_ns, m.donor, m.settings,
           m.servers, m.passes, ranks.bytes, reals.bits, caf::meta::load_callback([&ranks, &reals] {
             if (auto error = ranks.restore()) return error;
             return reals.restore();
           }));
}

}  // namespace grapevine
