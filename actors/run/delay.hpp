// Straggler injection: how much slower a worker is made at each step, and single stalls.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "messages/expected.hpp"
#include "messages/ids.hpp"
#include "messages/time.hpp"
#include "net/sim/link_faults.hpp"

namespace grapevine {

// A pause of one worker, link or server, once, for `length`.
struct Stall {
  enum class Kind {
    compute,  // the worker of `rank` at `step`
    data,     // that worker's batch
    link,     // from the first message of `rank` to `peer` of `step` or later
    server    // `rank`, a server, from the first message of a worker's `step` or later
  };
  Kind kind = Kind::compute;
  Rank rank = 0;
  Rank peer = -1;
  Step step = 0;
  Duration length{0};
};

// How much later than computed a worker's gradient is handed over: a pure function of rank, step
// and the length of the rank's batch at that step, which is one of the seed, rank and step. So
// every rank can compute the delays of all ranks, and "K random ranks each step" needs no messages.
class DelayModel {
 public:
  using Term = std::function<Duration(Rank, Step)>;

  DelayModel() = default;  // no delay
  void add(Term term) { terms_.push_back(std::move(term)); }
  void add_per_time_step(Duration delay) { per_time_step_ += delay; }

  // `length`: time steps of the batch, 0 where its samples have none (Gradient::length).
  Duration operator()(Rank rank, Step step, std::int64_t length = 0) const;

  void add(const Stall& stall) { stalls_.push_back(stall); }
  const std::vector<Stall>& stalls() const { return stalls_; }
  // How long the worker waits for the batch of a step, before all else.
  Duration of_data(Rank rank, Step step) const;

  // How long a gradient is computed in virtual time, which the delay then contains.
  void set_compute(Term term) { compute_ = std::move(term); }
  Duration of_compute(Rank rank, Step step) const;

  // Times at which the process of a rank computes nothing, since the start; they may overlap.
  void add(const RankPause& pause);
  // How long `work` takes that begins at `begin`.
  Duration with_pauses(Rank rank, Timestamp begin, Duration work) const;

  bool by_length() const { return per_time_step_ > Duration::zero(); }

 private:
  Duration stalled(Stall::Kind kind, Rank rank, Step step) const;

  std::vector<Term> terms_;
  Term compute_;  // null: takes no virtual time
  std::vector<Stall> stalls_;
  std::vector<RankPause> pauses_;  // by their begin
  Duration per_time_step_{0};
};

// Grammar (comma-separated terms add up):
//   rank=R:DUR         one rank, every step
//   random=K:DUR       K random ranks at each step
//   rotate=DUR..DUR    evenly spaced delays over the ranks, rotated by one rank at each step
//   length[=DUR]       DUR (1ms) for every time step of the rank's batch, padding included
//   lognormal=MU:SIGMA exp(N(mu, sigma^2)) seconds for every rank and step
//   stall=compute:R@STEP:DUR, stall=data:R@STEP:DUR   once: the worker of rank R, or its batch
//   stall=link:FROM-TO@STEP:DUR   once: the messages from rank to rank, from this step of FROM on
//   stall=server:R@STEP:DUR       once: the server of rank R, from a message of this step on
// DUR is like 300ms, 0.3s, 250us. An empty spec: no delay. `ranks` train, `servers` follow them.
// Errors (bad_input) quote the term and give the expected form.
Expected<DelayModel> parse_delay(const std::string& spec, std::int32_t ranks, std::uint64_t seed,
                                 std::int32_t servers = 0);

// "300ms" -> 300,000,000 ns. Units: ns us ms s.
Expected<Duration> parse_duration(const std::string& text);

}  // namespace grapevine
