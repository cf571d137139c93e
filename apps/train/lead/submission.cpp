#include "apps/train/lead/submission.hpp"

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>

#include "algorithms/wiring/role_type.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/node/submit_job.hpp"
#include "apps/train/train_folder.hpp"
#include "apps/train/train_job.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMostRestarts = 1'000'000;

// Of a job that is resumed, process 0 alone knows the wiring.
bool may_continue(const TrainOptions& options) {
  if (!options.resume.empty()) return true;
  const auto wiring = effective_wiring(options);
  if (!wiring) return true;  // process 0 says what is wrong with it
  const auto plan = resolve(*wiring);
  return !plan || changes_members(*plan);
}

// Reads --on-failure, --restarts, --min-ranks and the number of places.
Expected<void> read_failure_options(const CLI::App& app, const TrainOptions& options,
                                    Submission& job) {
  const std::string& typed = options.on_failure;
  if (!typed.empty() && typed != "continue" && typed != "stop")
    return unknown_name("--on-failure", typed, {"continue", "stop"});
  if (auto checked = check_range("--restarts", options.restarts, 0, kMostRestarts); !checked)
    return checked;
  if (typed == "stop" && app.get_option("--restarts")->count() > 0)
    return bad_input("--restarts does not go with --on-failure stop: leave one of them out");
  job.continues = typed != "stop" && may_continue(options);
  job.restarts = static_cast<std::int32_t>(options.restarts);
  const std::int64_t each = options.workers == kWorkersAsUsual ? 1 : options.workers;
  if (options.min_ranks > 0 && each > 0)
    job.least = static_cast<std::int32_t>((options.min_ranks + each - 1) / each);
  if (options.max_ranks > 0 && each > 0 && options.max_ranks % each == 0)
    job.places = static_cast<std::int32_t>(options.max_ranks / each);
  return {};
}

}  // namespace

Expected<void> submit_train_job(const CLI::App& app, TrainOptions& options, Console& console) {
  if (auto checked = check_train_options(options); !checked) return checked;
  if (auto checked = check_least("--processes", options.processes, 0, ", 0: one in each slot");
      !checked)
    return checked;
  if (!options.requeue_command.empty())
    return bad_input("--requeue-command does not go with --cluster: give the job again by hand");
  Submission job;
  if (auto read = read_failure_options(app, options, job); !read) return read;
  if (!options.notice.empty()) console.err << options.notice << std::endl;
  job.cluster = options.cluster;
  job.secret_file = options.secret_file;
  if (auto loaded = load_certificates(options); !loaded) return loaded;
  job.tls = options.certificates;
  job.arguments = travelling_arguments(app, options);
  job.out = options.out;
  // With only --resume process 0 decides: it knows the existing folders.
  if (job.out.empty() && options.resume.empty()) job.out = dated_folder(options.algorithm);
  if (!job.out.empty()) job.arguments.push_back("--out=" + job.out);
  job.processes = options.processes;
  job.timeout = from_seconds(options.join_timeout_s);
  return submit_job(job, console);
}

}  // namespace grapevine
