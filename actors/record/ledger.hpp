// Ledger: counts of one rank's contributions and of the updates that it applied.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "algorithms/env.hpp"
#include "algorithms/state_dict.hpp"

namespace grapevine {

// produced = committed + pending + dropped holds at every moment, per rank and in sum.
struct Ledger {
  std::int64_t produced = 0;   // gradients that came from the worker
  std::int64_t committed = 0;  // in the model of this rank, or in the common result
  std::int64_t dropped = 0;
  std::int64_t samples = 0;  // that went into produced gradients
  std::int64_t pending() const { return produced - committed - dropped; }

  std::int64_t sent = 0;         // messages handed to the transport for a live rank
  std::int64_t received = 0;     // messages from live ranks
  std::int64_t sent_before = 0;  // before the checkpoint that this run resumed from
  std::uint64_t bytes_sent = 0;  // headers and payload, over the whole training
  // Of applied updates: staleness -> how many. Few different ones, see coarse_age().
  std::map<std::int64_t, std::int64_t> staleness;

  // Partial sums, by the age of the contribution; -1: none.
  std::map<std::int64_t, std::int64_t> contributed;

  void count(const Event& event);
  void merge(const Ledger& other);
  StateDict save() const;
  // Errors (bad_input): entries that are missing or are no counts, or more gradients committed and
  // dropped than produced; the ledger must not be used then.
  Expected<void> load(const StateDict& state);
};

// An age as histograms have it: exact below 128; a larger one is rounded down to six binary digits,
// by at most 3 %, so that a histogram has fewer than 1,000 different ones.
std::int64_t coarse_age(std::int64_t age);

// Mean, percentiles and maximum of a histogram; all 0 where it is empty.
struct HistogramSummary {
  double mean = 0;
  std::int64_t p50 = 0, p99 = 0, max = 0;
};
HistogramSummary summarize(const std::map<std::int64_t, std::int64_t>& histogram);

}  // namespace grapevine
