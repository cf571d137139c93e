#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/record/checkpoints/job_json.hpp"
#include "actors/run/state_bytes.hpp"
#include "tests/fuzz/fuzz_targets.hpp"
#include "tests/fuzz/scratch_file.hpp"
#include "tests/fuzz/state_input.hpp"

namespace grapevine {
namespace {

using nlohmann::json;

constexpr std::size_t kMostRanks = 8;

// A checkpoint of two ranks.
class CheckpointFolder {
 public:
  CheckpointFolder() {
    StateDict state;
    state.put("reported", std::int64_t{7});
    const std::vector<char> bytes = to_bytes(state);
    rank_.fill({bytes.data(), bytes.size()});
    folder_.add("job.json", job_);
    for (const char* name : {"rank-0000.pt", "rank-0001.pt"}) folder_.add(name, rank_);
  }

  std::string fill(std::string_view job) {
    job_.fill(job);
    return folder_.path();
  }

 private:
  fuzzing::ScratchFile job_, rank_;
  const fuzzing::ScratchFolder folder_{"checkpoint"};
};

void check_lost(const Checkpoint& checkpoint, std::size_t ranks) {
  Rank before = -1;
  for (const Rank rank : checkpoint.lost) {
    GRAPEVINE_CHECK(rank > before && static_cast<std::size_t>(rank) < ranks, "lost is no list");
    before = rank;
  }
  GRAPEVINE_CHECK(checkpoint.lost.size() < ranks, "no rank is left");
}

void check_lost_batches(const BatchesOfLost& lost) {
  for (const BatchRun& run : lost.ahead)
    GRAPEVINE_CHECK(run.first >= 0 && run.stride >= 1 && run.count >= 0 &&
                        run.count <= BatchesOfLost::kMostAhead,
                    "batches of no run are loaded");
  for (const auto& [rank, taken] : lost.taken)
    GRAPEVINE_CHECK(rank >= 0 && taken >= 0, "batches of no rank are loaded");
}

// The files beside it, where there are such.
void check_files(std::string_view job) {
  static CheckpointFolder folder;
  const auto checkpoint = read_checkpoint(folder.fill(job));
  if (!checkpoint) return check_one_line(checkpoint.error());
  GRAPEVINE_CHECK(checkpoint->reported().size() == checkpoint->ranks.size(), "ranks are missing");
}

void check_ledger(const StateDict& state) {
  Ledger ledger, again;
  if (const auto loaded = ledger.load(state.under("ledger")); !loaded)
    return check_one_line(loaded.error());
  const StateDict saved = ledger.save();
  GRAPEVINE_CHECK(again.load(saved).ok(), "a ledger that was saved is refused");
  GRAPEVINE_CHECK(again.staleness == ledger.staleness && again.contributed == ledger.contributed,
                  "a ledger loads as another");
  for (const auto& [name, value] : saved.entries()) {
    const auto* count = std::get_if<std::int64_t>(&value);
    GRAPEVINE_CHECK(count != nullptr && *count >= 0, "a count below 0 is loaded: " + name);
  }
}

void check_view(const StateDict& state, Rank rank) {
  const auto view = load_view(state, rank);
  if (!view) return check_one_line(view.error());
  if (!*view) return;
  const std::vector<Rank>& members = (*view)->ranks.members;
  GRAPEVINE_CHECK(std::is_sorted(members.begin(), members.end()), "members are not in order");
  const auto position = static_cast<std::size_t>((*view)->deal.position);
  GRAPEVINE_CHECK(position < members.size() && members[position] == rank, "another's batches");
  StateDict saved;
  saved.put_all("view", save(**view));
  const auto again = load_view(saved, rank);
  GRAPEVINE_CHECK(again.ok() && *again, "a view that was saved is refused");
  GRAPEVINE_CHECK(
      (*again)->ranks.members == members && (*again)->ranks.heads == (*view)->ranks.heads,
      "a view loads as another");
}

void check_changed(Checkpoint checkpoint, const json& count) {
  if (!count.is_number_integer()) return;
  const auto ranks = static_cast<std::int32_t>(1 + count.get<std::uint64_t>() % kMostRanks);
  if (const auto changed = checkpoint.change_ranks(ranks, 3, 0.5); !changed)
    return check_one_line(changed.error());
  GRAPEVINE_CHECK(checkpoint.ranks.size() == static_cast<std::size_t>(ranks), "other ranks");
  check_lost(checkpoint, checkpoint.ranks.size());
  if (const auto view = checkpoint.view(); !view) check_one_line(view.error());
}

// What is asked of the states of the ranks, which the input has under "states" and "change".
void check_states(Checkpoint checkpoint, std::size_t ranks, const json& input) {
  checkpoint.path = "checkpoint";
  const json& states = input["states"];
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const bool has_state = states.size() > rank && !checkpoint.is_lost(static_cast<Rank>(rank));
    checkpoint.ranks.push_back(has_state ? fuzzing::state_of(states[rank]) : StateDict());
    check_ledger(checkpoint.ranks.back());
    check_view(checkpoint.ranks.back(), static_cast<Rank>(rank));
  }
  for (const std::size_t size :
       {checkpoint.steps().size(), checkpoint.reported().size(), checkpoint.epochs().size()})
    GRAPEVINE_CHECK(size == ranks, "ranks are missing");
  checkpoint.elapsed();
  if (const auto view = checkpoint.view(); !view) check_one_line(view.error());
  check_changed(std::move(checkpoint), input.value("change", json()));
}

// As from_bytes() does, without the archive around it, which takes longer than all else.
void read_dict(const json& object) {
  try {
    state_in(fuzzing::dict_of(object));
  } catch (const InvariantBroken&) {
    throw;
  } catch (const std::exception&) {
    return;  // no state
  }
}

}  // namespace

void fuzz_one_checkpoint(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzzing::text_of(data, size));
  Checkpoint checkpoint;
  const auto marks = parse_job_json(text, "job.json", checkpoint);
  if (!marks) return check_one_line(marks.error());
  check_lost(checkpoint, marks->size());
  for (const FormerLife& life : checkpoint.former)
    GRAPEVINE_CHECK(life.rank >= 0 && life.ledger.pending() >= 0, "a former life of no rank");
  check_lost_batches(checkpoint.lost_batches);
  const JobIdentity present = {{"algorithm", "sgp"}, {"steps", "10"}, {"world size", "2"}};
  if (const auto same = check_same_job(checkpoint.identity, present, "folder"); !same)
    check_one_line(same.error());
  const json input = json::parse(text);
  if (input.count("dict") > 0 && input["dict"].is_object()) read_dict(input["dict"]);
  if (input.count("states") > 0 && input["states"].is_array() && marks->size() <= kMostRanks)
    check_states(std::move(checkpoint), marks->size(), input);
  else
    check_files(text);
}

}  // namespace grapevine
