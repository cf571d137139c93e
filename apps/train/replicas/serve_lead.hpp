// The work of a member: gradients for the lead of its worker, until the lead ends.
#pragma once
#include <functional>
#include <string>

#include "apps/train/replicas/replica_greeting.hpp"
#include "gpu/compute.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Returns when the lead reports that the run has ended. Waits for requests as long as the lead
// lives: a rank may wait for others. `compute`: of replica `replica`. `lead`: its name, for errors.
// `stop_requested`: asked about ten times a second between requests; the run is the lead's, so the
// first request goes to it, as SIGTERM, and the member serves until the lead has ended the run.
// `compute` has link.group, where there is one, which is aborted as soon as the lead is lost.
// Errors: peer_down: the lead is lost; protocol: it sends what none sends.
Expected<void> serve_lead(Compute& compute, const LeadLink& link, std::int32_t replica,
                          const std::string& lead, const std::function<bool()>& stop_requested);

}  // namespace grapevine
