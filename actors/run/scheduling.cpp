#include "actors/run/scheduling.hpp"

#include <algorithm>
#include <thread>

namespace grapevine {

unsigned scheduler_threads() {
  constexpr unsigned kFewest = 2;  // one actor that takes long holds up no other
  return std::max(kFewest, std::thread::hardware_concurrency());
}

void configure_scheduler(caf::actor_system_config& config, unsigned threads) {
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", std::size_t{threads});
}

}  // namespace grapevine
