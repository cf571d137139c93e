// OneTimeNonces: random numbers that a process gives to others, each for one proof of a secret.
#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "messages/time.hpp"

namespace grapevine {

// A nonce contains its time and a proof that this object made it: one that is given takes no
// memory, and however many others ask for, those that are given stay valid. Times are by one clock
// of this process that never goes back. Thread-safe.
class OneTimeNonces {
 public:
  static constexpr std::chrono::seconds kValid{10};

  OneTimeNonces();
  std::string make(Timestamp now) const;
  // Whether it is valid and was not used before; it is used then. REQUIRES: its user has proved to
  // know the secret, else others could fill the memory: a used nonce is kept while it is valid.
  bool use(const std::string& nonce, Timestamp now);

 private:
  const std::string key_;
  std::mutex mutex_;                                     // guards used_
  std::set<std::pair<std::int64_t, std::string>> used_;  // valid ones, by time in nanoseconds
};

}  // namespace grapevine
