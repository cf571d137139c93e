#include "actors/cluster/node_seal.hpp"

#include <algorithm>

namespace grapevine {
namespace {

constexpr std::uint64_t kWindow = 4096;  // numbers that may still come late

std::string derived(const std::string& secret, const char* use, const Greet& greet,
                    const Greeting& greeting) {
  return mac_of(secret, {use, greet.nonce, greeting.nonce, std::to_string(greeting.session)});
}

}  // namespace

bool SealReader::is_new(std::uint64_t number) {
  if (number == 0 || number + kWindow <= newest_ || !seen_.insert(number).second) return false;
  newest_ = std::max(newest_, number);
  while (*seen_.begin() + kWindow <= newest_) seen_.erase(seen_.begin());
  return true;
}

Greeting answer_greeting(const std::string& secret, const Greet& greet, std::uint64_t session) {
  Greeting greeting;
  greeting.session = session;
  greeting.nonce = random_hex(kNonceBytes);
  greeting.proof = derived(secret, "the pool", greet, greeting);
  return greeting;
}

SealedSession pool_session(const std::string& secret, const Greet& greet,
                           const Greeting& greeting) {
  return {Sealer(greeting.session, derived(secret, "to the caller", greet, greeting)),
          SealReader(greeting.session, derived(secret, "to the pool", greet, greeting))};
}

Expected<SealedSession> caller_session(const std::string& secret, const Greet& greet,
                                       const Greeting& greeting) {
  if (greeting.refused) return greeting.error;
  if (!equal_secrets(greeting.proof, derived(secret, "the pool", greet, greeting)))
    return bad_input(
        "the secret differs from that of this pool: give the same --secret-file, or "
        "GRAPEVINE_CLUSTER_SECRET, everywhere");
  return SealedSession{
      Sealer(greeting.session, derived(secret, "to the pool", greet, greeting)),
      SealReader(greeting.session, derived(secret, "to the caller", greet, greeting))};
}

}  // namespace grapevine
