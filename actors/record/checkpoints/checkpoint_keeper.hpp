// CheckpointKeeper: removes the checkpoints of a run that nobody needs any more.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "gpu/compute.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// --checkpoint-keep: all; the newest `newest` ones; or the newest and that of the best validation.
struct KeptCheckpoints {
  bool all = true;
  bool best = false;
  std::int64_t newest = 1;
};

// "all", "latest", "best" or a number. Errors (bad_input): another text.
Expected<KeptCheckpoints> parse_kept_checkpoints(const std::string& text);

// Better: a higher top-1, where there is none a lower loss.
bool better(const Evaluation& one, const Evaluation& other);

// Removes only checkpoints that it was given, never the newest. With `best` the link `best` in the
// folder of checkpoints points to the best one. Belongs to one thread: that which writes them, as a
// name may be that of an earlier one.
class CheckpointKeeper {
 public:
  // `validates`: validations come during the run. Where none do, no checkpoint waits for one.
  CheckpointKeeper(std::filesystem::path folder, KeptCheckpoints kept, bool validates)
      : folder_(std::move(folder)), kept_(kept), validates_(validates) {}

  // Of the run that this one continues in the same folder, from checkpoint `resumed`: all
  // checkpoints there, and its validations until then. `longer`: this run ends later than that one
  // was to end.
  void add_earlier(const std::map<Epoch, Evaluation>& validations, const std::string& resumed,
                   bool longer);

  // A checkpoint of that name is about to be written. The `final` one of the earlier run makes room
  // for that of this run: it gets the name of its epoch, if it is known.
  void before_checkpoint(const std::string& name);
  void on_checkpoint(const std::string& path);
  // Of the epoch from 0.
  void on_validation(Epoch epoch, const Evaluation& evaluation);

 private:
  void name_earlier_final();
  void remove_others();
  std::optional<Epoch> epoch_of(const std::filesystem::path& checkpoint) const;
  std::optional<Epoch> best_epoch() const;

  const std::filesystem::path folder_;
  const KeptCheckpoints kept_;
  const bool validates_;
  std::map<std::int64_t, std::filesystem::path> checkpoints_;  // by the order of their writing
  std::int64_t written_ = 0;
  std::map<Epoch, Evaluation> validations_;
  bool final_is_earlier_ = false;       // `final`, if there is one, is of the earlier run
  std::optional<Epoch> earlier_final_;  // its epoch, if it is known
};

}  // namespace grapevine
