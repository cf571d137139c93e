#include "apps/train/lead/announcement.hpp"

#include <cstddef>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "actors/cluster/rendezvous.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "apps/console/text/figures.hpp"
#include "apps/launched/launcher_environment.hpp"
#include "apps/train/train_resume.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

// No process knows the secret of a job of nodes but those that the nodes start.
std::string takers_of(std::size_t places, const ClusterConfig& cluster) {
  if (const char* const pool = std::getenv(kPoolVariable); pool != nullptr)
    return fmt::format("a node that joins the pool, 'grapevine node --join {}', takes {}", pool,
                       places == 1 ? "it" : "them");
  const std::string token = std::string(", with the job's ") + kJobTokenVariable;
  return fmt::format("'grapevine train --join {}' takes one{}", head_of(cluster),
                     cluster.secret.empty() ? "" : token);
}

std::string of_places(const TrainJob& job) {
  return job.run.vacant().empty() ? "" : std::to_string(job.run.beginning_workers()) + " of ";
}

// Whether the default of --momentum counts for nothing: it is refused where it is given.
bool steps_plainly(const SharedParts& parts) {
  return !parts.plan.role->uses_momentum(parts.plan) && parts.optimizer.momentum != 0;
}

}  // namespace

void announce(const TrainJob& job, RunDisplay& display) {
  if (!job.continues.empty()) display.say_error(job.continues + "\n");
  const TrainOptions& o = job.options;
  if (!o.notice.empty()) display.say_error(o.notice + "\n");
  const Step steps = last_step(job);
  display.say_error(o.algorithm + ": " + o.model + " (" + format_count(job.parameters) +
                    " parameters) on " + o.data + ", " + of_places(job) +
                    std::to_string(o.workers) + (o.workers == 1 ? " worker" : " workers") +
                    " x batch " + std::to_string(o.batch_size) +
                    (o.accumulate > 1 ? " x " + std::to_string(o.accumulate) : "") + ", " +
                    format_count(steps) + (steps == 1 ? " step" : " steps") +
                    (steps_plainly(*job.run.parts) ? ", without momentum" : "") + "\n");
  if (job.run.vacant().empty()) return;
  const std::size_t vacant = job.run.vacant().size();
  display.say_error(fmt::format("{} vacant: {}\n",
                                vacant == 1 ? "1 place is" : fmt::format("{} places are", vacant),
                                takers_of(vacant, *job.run.cluster)));
}

}  // namespace grapevine
