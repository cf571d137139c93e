#include "gpu/model/graphs_notice.hpp"

#include <spdlog/spdlog.h>

namespace grapevine {

void GraphsNotice::report(const std::string& name, const std::string& why) {
  constexpr char kNoEffect[] = "--cuda-graphs has no effect: ";
  if (warns_.exchange(false))
    spdlog::warn("{}{}", kNoEffect, why);
  else
    spdlog::info("{}: {}{}", name, kNoEffect, why);
}

}  // namespace grapevine
