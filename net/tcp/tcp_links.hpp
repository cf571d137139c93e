// The links of one process to the others of its job, by the greetings that they send over TCP.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "net/process_links.hpp"
#include "net/tcp/tcp_greeting.hpp"

namespace grapevine::tcp {

// The event loop changes them, connect() waits for them. Thread-safe.
class Links : public ProcessLinks {
 public:
  // `token`: a connection must prove that it knows it.
  Links(const Placement& placement, std::vector<std::string> names, const JobToken& token,
        const std::vector<std::int32_t>& absent = {})
      : ProcessLinks(placement, std::move(names), absent),
        own_{own_process(), ProcessLinks::placement(), token} {}

  // The answer to the proof of a process that connects. One without the token learns the refusal
  // alone.
  Proof answer(const Proof& dialler, const Nonces& nonces) {
    if (!is_right_dialler(dialler, own_.token, nonces)) return {0, 0, Refusal::other_job, 0, {}};
    const Refusal refusal = judge(dialler.process, dialler.placement, dialler.to);
    return proof_of_listener(own_, refusal, nonces, dialler);
  }
  // The reason of such a refusal, for the log of this process.
  std::string reason(Refusal refusal, const Proof& dialler) const {
    if (refusal != Refusal::other_process) return describe(refusal);
    return fmt::format("process {} dialled process {} and reached process {}: check its addresses",
                       dialler.process, dialler.to, own_.process);
  }

 private:
  const LinkIdentity own_;
};

}  // namespace grapevine::tcp
