#include "actors/run/supervision/losses/silent_processes.hpp"

#include <algorithm>

namespace grapevine {

void SilentProcesses::hear(std::int32_t process, Timestamp now) {
  processes_[process] = Process{now, std::nullopt};
}

void SilentProcesses::relax() {
  for (auto& [process, of] : processes_) of.asked.reset();
}

Duration SilentProcesses::limit(std::optional<Duration> usual) const {
  return usual ? std::clamp(Duration(kFactor * *usual), least_, most_) : most_;
}

std::vector<std::int32_t> SilentProcesses::ask(Timestamp now) {
  if (now - looked_ > patience()) relax();
  looked_ = now;
  std::vector<std::int32_t> asked;
  for (auto& [process, of] : processes_) {
    if (of.asked) continue;
    of.asked = now;
    asked.push_back(process);
  }
  return asked;
}

std::vector<SilentProcesses::Silence> SilentProcesses::find(Timestamp now,
                                                            const PaceOf& usual) const {
  std::vector<Silence> silent;
  if (now - looked_ > patience()) return silent;  // answers may wait to be read
  for (const auto& [process, of] : processes_) {
    if (!of.asked) continue;
    const Duration limit = this->limit(usual(process));
    if (now - std::max(of.heard, *of.asked - limit / 2) >= limit)
      silent.push_back({process, now - of.heard});
  }
  std::stable_sort(silent.begin(), silent.end(),
                   [](const Silence& a, const Silence& b) { return a.length > b.length; });
  return silent;
}

}  // namespace grapevine
