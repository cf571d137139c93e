#include "tests/fuzz/mutators/mutators.hpp"

namespace grapevine::fuzzing {
namespace {

// Members of job.json and of the states of ranks, as fuzz_one_checkpoint() has them.
const nlohmann::json& checkpoint_members() {
  static const nlohmann::json members = nlohmann::json::parse(R"({
    "version": 2, "ranks": 3, "job": {"algorithm": "sgp", "steps": "10", "world size": "2"},
    "step": 4, "lost": [1],
    "files": {"rank-0000.pt": {"bytes": 1, "crc32": 1}, "rank-0001.pt": {"bytes": 1, "crc32": 1}},
    "former": [{"rank": 1, "samples": 64, "produced": 4, "committed": 3, "dropped": 0,
                "messages": 7, "bytes": 900, "staleness": [[0, 2], [1, 1]]}],
    "batches": {"left_out": 1, "taken_again": 1, "left_out_runs": [[0, 3, 1, 1]],
                "taken_again_runs": [[0, 4, 1, 1]]},
    "lost_batches": {"ahead": [[5, 2, 3]], "taken": [[1, 9]]}, "ahead": [[7, 1, 1]],
    "rank": 1, "samples": 64, "produced": 4, "committed": 3, "dropped": 0, "messages": 7,
    "bytes": 900, "staleness": [[0, 2]],
    "change": 2,
    "states": [{"view.number": 1, "view.members": [0, 1], "view.first_step": 0,
                "view.first_epoch": 0.0, "view.first_batch": 0, "view.deal_step": 0,
                "view.deal_is_new": 0}, {}],
    "dict": {"x": {"sizes": [2], "strides": [1], "dtype": 1}, "text:rng": "any", "w": 0.5},
    "view.number": 1, "view.members": [0, 1, 2], "view.heads": [0], "view.first_step": 3,
    "view.first_epoch": 0.5, "view.first_batch": 1, "view.deal_step": 1, "view.deal_is_new": 1,
    "view.later_end": 2, "view.by_samples": 1,
    "ledger.produced": 4, "ledger.committed": 3, "ledger.dropped": 0, "ledger.samples": 64,
    "ledger.messages_sent": 7, "ledger.bytes_sent": 900, "ledger.staleness.0": 2,
    "ledger.joined.-1": 1,
    "reported": 7, "model.step": 6, "model.epoch": 0.5, "deal_end": 8, "elapsed_ns": 1000,
    "sizes": [3], "strides": [0], "dtype": 4, "text:a": {"sizes": [3], "strides": [1], "dtype": 0}
  })");
  return members;
}

}  // namespace

std::string mutate_checkpoint(std::string_view text, Rng& rng) {
  return mutate_json(text, checkpoint_members(), rng);
}

}  // namespace grapevine::fuzzing
