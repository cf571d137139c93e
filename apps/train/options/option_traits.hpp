// OptionTraits: what is true of each option of `train`. What the program does with an option beside
// training (help, job.toml, checkpoints, nodes, simulations) follows from its row in one table.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "apps/train/train_options.hpp"

namespace grapevine {

// The member of TrainOptions that has the option's value; std::monostate: none.
using OptionMember = std::variant<std::monostate, std::string TrainOptions::*, bool TrainOptions::*,
                                  std::int32_t TrainOptions::*, std::int64_t TrainOptions::*,
                                  double TrainOptions::*, std::vector<std::string> TrainOptions::*>;

struct OptionTraits {
  enum Trait : unsigned {
    // Concerns the process that gives the job to nodes: the option does not travel with the job.
    stays_here = 1U << 0,
    // Refused without --cluster.
    needs_cluster = 1U << 1,
    // Of one process, machine or command, so that another run with it would collide or would not
    // begin at its first step: job.toml does not state it. docs/composition.md gives the reasons.
    not_in_job_file = 1U << 2,
    // `train` may choose another value than was given: job.toml states the chosen one.
    chosen = 1U << 3,
    // Checkpoints state it, and a resumed run must have the same, but for may_change_on_resume.
    identity = 1U << 4,
    // The same, but checkpoints do not state the default: they may be older than the option.
    identity_unless_default = 1U << 5,
    // A step reads it, and no rank's state depends on it.
    may_change_on_resume = 1U << 6,
    // `control` and --schedule may change it while the job runs.
    live = 1U << 7,
    // Means nothing in a simulation: no help of `simulate` shows it.
    not_simulated = 1U << 8,
    // `simulate` refuses it, and leaves its variable of the environment out.
    refused_in_simulation = 1U << 9,
  };

  const char* name;        // without dashes; "job": the file, which has no option
  const char* help_group;  // of --help-all; null: --help shows it, too
  OptionMember member;
  unsigned traits = 0;  // the sum of some Trait

  bool has(Trait trait) const { return (traits & trait) != 0; }
};

// One row for each option that declare_train_options() declares.
const std::vector<OptionTraits>& option_traits();

// Whether the option has the trait. False for options of other verbs and for keys of wirings.
bool option_has(const std::string& name, OptionTraits::Trait trait);
// REQUIRES: an option of `train`.
const OptionTraits& traits_of(const std::string& name);
std::vector<std::string> options_with(OptionTraits::Trait trait);

bool is_default(const TrainOptions& options, const OptionTraits& option);
void set_default(TrainOptions& options, const OptionTraits& option);
// With all digits; switches: true or false. REQUIRES: one value.
std::string value_text(const TrainOptions& options, const OptionTraits& option);

}  // namespace grapevine
