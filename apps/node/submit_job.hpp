// `train --cluster`: gives the job to the nodes of a pool and shows how it goes.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/console/command.hpp"
#include "messages/time.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine {

struct Submission {
  std::string cluster;                         // host:port of the first node
  std::string secret_file;                     // empty: GRAPEVINE_CLUSTER_SECRET, or none
  std::shared_ptr<const tcp::TlsContext> tls;  // null: without TLS
  std::vector<std::string> arguments;          // of `train` over there
  std::string out;                             // for people: the folder of process 0, or empty
  std::int32_t processes = 0;                  // these five: SubmitJob's
  std::int32_t places = 0;
  bool continues = true;
  std::int32_t restarts = 0;
  std::int32_t least = 0;
  Duration timeout{0};  // to reach the first node
};

// Until the job has ended. The output of process 0 goes to stdout and stderr, that of the
// others to stderr after "[process] ". SIGINT, SIGTERM and SIGUSR1 are forwarded to the job: the
// first two stop it with a checkpoint, a second SIGINT kills it.
//
// Errors: bad_input: an error of the job, found by this side, the pool or a process; else the pool
// cannot be reached, is busy, has died, or why the job failed.
Expected<void> submit_job(const Submission& submission, Console& console);

}  // namespace grapevine
