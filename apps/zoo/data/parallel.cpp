#include "apps/zoo/data/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <vector>

namespace grapevine {

void parallel_for(int threads, std::int64_t count, const std::function<void(std::int64_t)>& work) {
  std::atomic<std::int64_t> next{0};
  const auto drain = [&] {
    for (std::int64_t i = next++; i < count; i = next++) work(i);
  };
  // Destroyed before `next`: a throwing drain() below still waits for the helpers.
  std::vector<std::future<void>> helpers;
  const std::int64_t wanted = std::min<std::int64_t>(threads, count);
  for (std::int64_t t = 1; t < wanted; ++t)
    helpers.push_back(std::async(std::launch::async, drain));
  drain();
  for (std::future<void>& helper : helpers) helper.get();
}

}  // namespace grapevine
