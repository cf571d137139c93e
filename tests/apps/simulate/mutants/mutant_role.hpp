// A role with a planted bug: the shipped one, between whose handlers and whose Env a Bug stands.
#pragma once
#include <functional>
#include <memory>

#include "algorithms/role.hpp"
#include "apps/simulate/sim_job.hpp"

namespace grapevine {
namespace simulate_mutants {

// The rank whose role has the bug, in one view.
struct Place {
  Rank rank = 0;            // its position among those that train, or the number of a server
  std::int32_t ranks = 0;   // that train
  bool later_view = false;  // members have changed
  bool server = false;
  ModelState& model;
};

// Handlers see what passes and may change it. A number is that of its copies: 0 loses it.
class Bug {
 public:
  virtual ~Bug() = default;
  virtual void on_gradient(Gradient&) {}
  virtual int on_send(Rank& /*to*/, Stamp&, Payload&) { return 1; }
  virtual int on_receive(const Envelope&) { return 1; }
  virtual int on_record(Event&) { return 1; }
  // The role has taken the state of another rank, because it joins.
  virtual void on_joined(Role&) {}
};

using MakeBug = std::function<std::unique_ptr<Bug>(const Place&)>;

// Each role of the run gets a bug of its own; null: that one has none.
void plant(SimJob& made, MakeBug make);

}  // namespace simulate_mutants
}  // namespace grapevine
