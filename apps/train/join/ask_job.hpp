// AskJob: how a process that knows only the address of a running job finds its place in it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "actors/protocol.hpp"
#include "messages/time.hpp"
#include "net/cancelled.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine {

struct JobQuestion {
  std::string host;  // of the head
  std::uint16_t port = 0;
  std::string secret;  // of the job; empty: none
  std::string version;
  std::map<std::string, std::string> options;  // given here, which must be those of the job
  std::shared_ptr<const tcp::TlsContext> tls;  // null: without TLS
  Duration timeout{0};  // for a job to begin, or for one of its processes to be lost
  Cancelled cancelled;
};

// The job at that address and the number of a process that it has lost. Asks again until there is
// one. Blocks; the connection ends with it. Errors: timeout (nobody listens there, or no process
// was lost meanwhile); bad_input (the head refuses, also other options, or does not know the
// secret); failed: cancelled.
Expected<JobOffer> ask_for_job(const JobQuestion& question);

}  // namespace grapevine
