// ControlNonces: numbers that a control server gives out, each for one request.
#pragma once
#include <chrono>
#include <map>
#include <mutex>
#include <string>

namespace grapevine {

// A nonce contains its time and a proof that this object made it, so that those which nobody uses
// take no memory. Thread-safe.
class ControlNonces {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kValid{10};

  ControlNonces();
  std::string make(Clock::time_point now = Clock::now()) const;
  // Whether it is valid and was not used before; it is used then. REQUIRES: its user has proved to
  // know the secret, else others could fill the memory.
  bool use(const std::string& nonce, Clock::time_point now = Clock::now());

 private:
  const std::string key_;
  std::mutex mutex_;                               // guards used_
  std::map<std::string, Clock::time_point> used_;  // until it is not valid any more
};

}  // namespace grapevine
