// A status of a running job, for tests of what people see of it.
#pragma once
#include <nlohmann/json.hpp>

#include "apps/control/status_json.hpp"

namespace grapevine {

// Rank 2 does not answer, and the others wait for it.
inline RunStatus stalled_status(std::int32_t ranks = 4) {
  RunStatus status;
  status.stage = "running";
  status.time_s = 75;
  status.workers = status.processes = ranks;
  status.epochs = 3;
  status.epochs_done = 1.5;
  status.goodput = 0.876;
  for (Rank rank = 0; rank < ranks; ++rank) {
    RankStatus of;
    of.rank = of.process = rank;
    of.steps = 1000 + rank;
    of.steps_per_s = 20.5 - rank;
    of.samples_per_s = 656;
    of.loss = 0.25;
    of.staleness = rank;
    of.answers = rank != 2;
    of.silent_s = of.answers ? 0 : 12.5;
    if (of.answers) {
      WaitReport wait;
      wait.rank = rank;
      wait.waits = {{2, PayloadKind::chunk, 812, 5, 6}};
      wait.waiting_ns = 12'000'000'000 + rank;
      of.wait = wait;
    }
    of.ledger.produced = of.ledger.committed = 1000;
    of.ledger.bytes_sent = 1'500'000U * static_cast<unsigned>(ranks - rank);
    of.sent_bytes[(rank + 1) % ranks] = of.ledger.bytes_sent;
    status.ranks.push_back(of);
  }
  status.queued_bytes.assign(static_cast<std::size_t>(ranks), 0);
  if (ranks > 2) status.queued_bytes[2] = -1;
  if (ranks > 1) status.queued_bytes[1] = 7'300'000;
  status.waits = {
      "rank 0 has waited 12 s for chunk 5/6 of operation 812 from rank 2; rank 2 of process 2 has "
      "not answered for 12 s: its process is stopped or overloaded, or cannot be reached"};
  status.events = {{"checkpoint", "runs/first/checkpoint/epoch-1", 40},
                   {"warning", "<b>rank 7</b> is & was slow", 60}};
  return status;
}

inline nlohmann::ordered_json stalled_json(std::int32_t ranks = 4) {
  return status_json(stalled_status(ranks),
                     {"ar", "mlp", "glyphs", "tcp", "runs/first", "machine", "1.2.3", 77});
}

}  // namespace grapevine
