// The links of one process to the others of its job, by the greetings that they send over TCP.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "net/process_links.hpp"
#include "net/tcp/tcp_greeting.hpp"
#include "net/token.hpp"

namespace grapevine::tcp {

// The event loop changes them, connect() waits for them. Thread-safe.
class Links : public ProcessLinks {
 public:
  // `token`: a connection must know it.
  Links(const Placement& placement, std::vector<std::string> names, const JobToken& token,
        const std::vector<std::int32_t>& absent = {})
      : ProcessLinks(placement, std::move(names), absent), token_(token) {}

  // A process without the token must not learn it.
  Hello own_hello(Refusal refusal = Refusal::none) const {
    return {own_process(), refusal, refusal == Refusal::other_job ? JobToken{} : token_,
            placement()};
  }
  // The answer to the greeting of a process that connects.
  Refusal judge(const Hello& hello) {
    if (!equal_tokens(hello.job, token_)) return Refusal::other_job;
    return ProcessLinks::judge(hello.process, hello.placement);
  }

 private:
  const JobToken token_;
};

}  // namespace grapevine::tcp
