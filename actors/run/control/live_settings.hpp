// Settings of a job that may change while it runs.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

struct SharedParts;

// By name, as options and wirings have it: "lr", "wiring.density". Values as written.
using LiveSettings = std::map<std::string, std::string>;

// A preset: all keys of the wiring that were set before count for nothing then.
inline constexpr char kAlgorithmSetting[] = "algorithm";

// Wiring keys whose roles keep the same state at another value.
const std::vector<std::string>& live_wiring_numbers();
// Whether other roles take the place of the present ones: by their preset, or a key that is none of
// these numbers.
bool changes_wiring(const LiveSettings& changed);
// `changed` on top of `settings`.
LiveSettings with_settings(LiveSettings settings, const LiveSettings& changed);
// Numbers as a job file has them: "0.10" and "1e-1" become "0.1"; other texts stay.
LiveSettings with_plain_numbers(LiveSettings settings);
// Why a wiring is refused that does not change (changes_members() of a plan), to run or to come: a
// change takes a step that all ranks begin anew together.
inline constexpr char kDoesNotChange[] =
    "a wiring with parameter servers of nodes or levels does not change while it runs";
inline constexpr char kDoesNotCome[] =
    "a wiring with parameter servers of nodes or levels does not come into a running job";
// Those that decide the wiring: the preset and keys of the wiring.
LiveSettings wiring_settings(const LiveSettings& settings);
// "lr = 0.1, wiring.quorum = 3".
std::string settings_text(const LiveSettings& settings);

// A change that was planned before the run: once the slowest rank has `epoch` epochs behind it.
struct ScheduledChange {
  double epoch = 0;
  LiveSettings changed;
};

// The parts of the run, for the ranks that it began with, with these settings in the place of those
// of its start. The same in every process. Thread-safe. Errors (bad_input): a setting that does not
// exist or may not change; a value that is wrong or does not fit.
using ChangeParts =
    std::function<Expected<std::shared_ptr<const SharedParts>>(const LiveSettings&)>;

}  // namespace grapevine
