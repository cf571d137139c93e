#include "apps/train/live/live_job.hpp"

#include <utility>

#include <spdlog/spdlog.h>

#include "actors/record/files.hpp"
#include "apps/train/live/live_settings.hpp"

namespace grapevine {

void ChangingJob::apply(const LiveSettings& settings) {
  for (TrainOptions* of : {&options, &resolved})
    if (!apply_settings(*of, settings)) return;
  if (auto changed = effective_wiring(options)) wiring = *std::move(changed);
}

std::string ChangingJob::text(const CLI::App& app) const {
  return job_file_text(app, resolved, wiring, origin);
}

ChangingJob as_it_begins(const TrainJob& job) {
  ChangingJob begun{job.options, resolved_options(job), job.wiring, {}};
  if (job.launched) begun.origin.processes = job.launched->processes;
  begun.origin.resumed = job.run.resume.has_value();
  return begun;
}

void LiveJob::put_into(TrainJob& job) {
  const std::lock_guard<std::mutex> lock(mutex);
  job.options = now.options;
  job.wiring = now.wiring;
}

std::shared_ptr<LiveJob> follow_changes(const CLI::App& app, const TrainJob& job, RunOutput& output,
                                        RunDisplay& display) {
  auto live = std::make_shared<LiveJob>();
  live->now = as_it_begins(job);
  output.when_changed([&app, live, out = job.out, &display](const LiveSettings& settings) {
    const std::lock_guard<std::mutex> lock(live->mutex);
    live->now.apply(settings);
    for (const auto& [key, value] : settings)
      display.say_error("changed: " + key + " = " + value + "\n");
    const auto written = write_file_atomically(out + "/" + kJobFileName, live->now.text(app));
    if (!written) spdlog::warn("{}", written.error().message);
  });
  return live;
}

}  // namespace grapevine
