#include "actors/record/checkpoints/checkpoint.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "actors/record/checkpoints/find_checkpoint.hpp"
#include "actors/record/checkpoints/job_json.hpp"
#include "actors/record/files.hpp"
#include "actors/run/state_bytes.hpp"
#include "messages/check.hpp"
#include "messages/text/control_characters.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Prefix of the name of a checkpoint that another one replaces.
constexpr char kReplaced[] = ".replaced-";

Error not_of_job(const std::string& path, const std::string& difference) {
  return bad_input(path + ": damaged, or of another checkpoint: " + difference +
                   " in job.json beside it; use another checkpoint");
}

Error not_a_file(const std::string& path) {  // a pipe would block its reader
  return bad_input(path + ": is no plain file: use another checkpoint");
}

// The length comes first: a file that is too long may not fit into memory. `mark`: nothing in
// checkpoints of versions that wrote none.
Expected<StateDict> read_rank(const std::string& path, const std::optional<FileMark>& mark) {
  std::error_code no_file;
  if (fs::exists(path, no_file) && !fs::is_regular_file(path, no_file)) return not_a_file(path);
  const std::uintmax_t size = fs::file_size(path, no_file);
  if (!no_file && mark && mark->bytes != size)
    return not_of_job(path, fmt::format("it has {} bytes, not the {}", size, mark->bytes));
  std::vector<char> bytes;
  try {
    bytes.resize(no_file ? 0 : size);
  } catch (const std::exception&) {  // std::bad_alloc, std::length_error
    return bad_input(fmt::format("{}: has {} bytes, for which there is no memory", path, size));
  }
  std::ifstream file(path, std::ios::binary);
  if (no_file || !file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    return bad_input(path + ": cannot be read: the checkpoint is not complete");
  if (mark && !(*mark == mark_of(bytes))) return not_of_job(path, "its checksum is not the one");
  auto state = from_bytes(bytes);
  if (!state)
    return bad_input(path + ": damaged: byte 0.." + std::to_string(bytes.size()) +
                     " is no checkpoint of a rank; use an older checkpoint");
  return state;
}

Expected<FileMark> write_state(const fs::path& path, const StateDict& state) {
  const std::vector<char> bytes = to_bytes(state);
  if (auto written = write_file_atomically(path, {bytes.data(), bytes.size()}); !written)
    return written.error();
  return mark_of(bytes);
}

// The file was synced by its writer.
Expected<FileMark> take_shard(const fs::path& from, const fs::path& to, const FileMark& mark) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(from, error);
  if (!error && size != mark.bytes)
    return Error{Errc::io, fmt::format("{}: has {} bytes, and its writer wrote {}", from.string(),
                                       size, mark.bytes)};
  if (!error) fs::rename(from, to, error);
  if (error) return Error{Errc::io, from.string() + ": cannot be renamed: " + error.message()};
  return mark;
}

// The counts of its gradients; those of messages are of no use without it.
json to_json(const FormerLife& life) {
  const Ledger& ledger = life.ledger;
  return {{"rank", life.rank},           {"samples", life.samples},
          {"produced", ledger.produced}, {"committed", ledger.committed},
          {"dropped", ledger.dropped},   {"messages", ledger.sent + ledger.sent_before},
          {"bytes", ledger.bytes_sent},  {"staleness", ledger.staleness}};
}

json to_json(const std::vector<BatchTally::Named>& runs) {
  json list = json::array();
  for (const auto& [epoch, run] : runs)
    list.push_back(json::array({epoch, run.first, run.stride, run.count}));
  return list;
}

json to_json(const BatchTally& tally) {
  return {{"left_out", tally.left_out},
          {"taken_again", tally.again},
          {"left_out_runs", to_json(tally.left_out_runs)},
          {"taken_again_runs", to_json(tally.again_runs)}};
}

json to_json(const BatchesOfLost& batches) {
  json ahead = json::array(), taken = json::array();
  for (const BatchRun& run : batches.ahead)
    ahead.push_back(json::array({run.first, run.stride, run.count}));
  for (const auto& [rank, count] : batches.taken) taken.push_back(json::array({rank, count}));
  return {{"ahead", ahead}, {"taken", taken}};
}

json to_json(const FileMark& mark) { return {{"bytes", mark.bytes}, {"crc32", mark.crc32}}; }

Expected<void> write_files(const fs::path& folder, const JobIdentity& identity,
                           const WriteCheckpoint& order, const std::function<void()>& on_progress,
                           const fs::path& shards, const std::string& job_file) {
  json files = json::object();
  if (!job_file.empty()) {
    if (auto written = write_file_atomically(folder / kJobFileName, job_file); !written)
      return written;
    files[kJobFileName] = to_json(mark_of({job_file.begin(), job_file.end()}));
  }
  Step furthest = 0;
  for (const RankSnapshot& rank : order.ranks) {
    const std::string name = rank_file(static_cast<std::size_t>(rank.rank));
    const auto mark = rank.file ? take_shard(shards / name, folder / name, *rank.file)
                                : write_state(folder / name, rank.state);
    if (!mark) return mark.error();
    files[name] = to_json(*mark);
    furthest = std::max(furthest, rank.step);
    if (on_progress) on_progress();
  }
  json job = {{"version", kCheckpointVersion},
              {"ranks", order.ranks.size() + order.lost.size()},
              {"job", identity},
              {"step", furthest},
              {"files", files}};
  if (!order.lost.empty()) job["lost"] = order.lost;
  for (const FormerLife& life : order.former) job["former"].push_back(to_json(life));
  if (order.batches.left_out + order.batches.again > 0) job["batches"] = to_json(order.batches);
  if (!order.lost_batches.ahead.empty() || !order.lost_batches.taken.empty())
    job["lost_batches"] = to_json(order.lost_batches);
  // A path may hold bytes that are no text.
  const std::string text = job.dump(2, ' ', false, json::error_handler_t::replace);
  return write_file_atomically(folder / "job.json", text + "\n");
}

// Moves `from` to `to`. An older checkpoint of that name is exchanged for the new one, in one step
// where the file system can, so that at every moment one of them is there whole.
Expected<void> take_name(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::exists(to, error)) {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
      fs::remove_all(from, error);
      return {};
    }
  }
  // A file system that cannot exchange: the older one is whole under another name meanwhile.
  const fs::path aside = to.parent_path() / (kReplaced + to.filename().string());
  if (fs::exists(to, error)) {
    fs::remove_all(aside, error);
    fs::rename(to, aside, error);
  }
  if (!error) fs::rename(from, to, error);
  if (error) {
    std::error_code ignored;  // the older one gets its name back, where it has lost it
    if (!fs::exists(to, ignored)) fs::rename(aside, to, ignored);
    return Error{Errc::io, to.string() + ": cannot be renamed: " + error.message()};
  }
  fs::remove_all(aside, error);
  return {};
}

// Reads job.json of `folder` into `checkpoint`. Returns the marks of the ranks' files.
Expected<RankMarks> read_job(const fs::path& folder, Checkpoint& checkpoint) {
  const std::string path = (folder / "job.json").string();
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return not_a_file(path);
  std::ifstream file(path);
  return parse_job_json({std::istreambuf_iterator<char>(file), {}}, path, checkpoint);
}

Expected<Checkpoint> read_files(const fs::path& folder) {
  Checkpoint checkpoint;
  // The canonical path, from which its siblings are found.
  std::error_code unknown;
  const fs::path real = fs::canonical(folder, unknown);
  checkpoint.path = (unknown ? folder : real).string();
  const auto marks = read_job(folder, checkpoint);
  if (!marks) return marks.error();
  for (std::size_t rank = 0; rank < marks->size(); ++rank) {
    if (checkpoint.is_lost(static_cast<Rank>(rank))) {
      checkpoint.ranks.emplace_back();
      continue;
    }
    auto state = read_rank((folder / rank_file(rank)).string(), (*marks)[rank]);
    if (!state) return state.error();
    checkpoint.ranks.push_back(std::move(*state));
  }
  return checkpoint;
}

void add_bytes(FileMark& mark, const void* bytes, std::size_t size) {
  mark.crc32 =
      static_cast<std::uint32_t>(::crc32_z(mark.crc32, static_cast<const Bytef*>(bytes), size));
  mark.bytes += size;
}

}  // namespace

FileMark mark_of(const std::vector<char>& bytes) {
  FileMark mark;
  add_bytes(mark, bytes.data(), bytes.size());
  return mark;
}

FileMark mark_of_parts(const std::vector<FrozenTensor>& parts) {
  FileMark mark;
  for (const FrozenTensor& part : parts) add_bytes(mark, part.raw(), part.nbytes());
  return mark;
}

Expected<std::string> write_checkpoint(const std::string& folder, const JobIdentity& identity,
                                       const WriteCheckpoint& order,
                                       const std::function<void()>& on_progress,
                                       const std::string& shards, const std::string& job_file) {
  const std::string& name = order.name;
  const fs::path final_path = fs::path(folder) / name;
  const fs::path temporary = fs::path(folder) / (kUnfinishedPrefix + name);
  std::error_code error;
  fs::remove_all(temporary, error);
  if (!fs::create_directories(temporary, error))
    return Error{Errc::io, temporary.string() + ": cannot be made: " + error.message()};
  if (auto written = write_files(temporary, identity, order, on_progress, shards, job_file);
      !written) {
    fs::remove_all(temporary, error);  // it may fill the disk
    return written.error();
  }
  if (auto synced = sync_directory(temporary); !synced) return synced.error();
  if (auto named = take_name(temporary, final_path); !named) return named.error();
  if (auto synced = sync_directory(folder); !synced) return synced.error();
  if (auto linked = replace_symlink_atomically(name, fs::path(folder) / "latest"); !linked)
    return linked.error();
  return final_path.string();
}

Expected<Checkpoint> read_checkpoint(const std::string& path) {
  return read_newest(path, [&path](const std::string& folder) -> Expected<Checkpoint> {
    if (!folder.empty()) return read_files(folder);
    return bad_input(path +
                     ": holds no checkpoint: expected job.json in it, in latest/, in "
                     "checkpoint/latest/ or in a folder of checkpoint/");
  });
}

Expected<std::string> read_marked_file(const std::string& checkpoint, const std::string& name) {
  const fs::path path = fs::path(checkpoint) / name, job = fs::path(checkpoint) / "job.json";
  const auto damaged = [&path](const std::string& why) {
    return Error{Errc::io, path.string() + ": " + why};
  };
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || !fs::is_regular_file(job, ignored))
    return damaged("no plain file");
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::string text(bytes.begin(), bytes.end());
  try {
    const json document = json::parse(std::ifstream(job));
    const json files = document.value("files", json::object());
    if (files.count(name) == 0 || mark_in(files[name]) == mark_of(bytes)) return text;
  } catch (const std::exception&) {
    return text;  // read_checkpoint() reports the damage of job.json
  }
  return damaged("not the one that job.json says");
}

void remove_stale_checkpoints(const std::string& folder) {
  std::error_code ignored;
  std::vector<fs::path> stale;
  std::vector<fs::path> replaced;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kUnfinishedPrefix, 0) == 0) stale.push_back(entry.path());
    if (name.rfind(kReplaced, 0) == 0) replaced.push_back(entry.path());
  }
  for (const fs::path& path : replaced) {
    const fs::path name = path.filename().string().substr(sizeof kReplaced - 1);
    if (fs::exists(fs::path(folder) / name, ignored))
      stale.push_back(path);
    else
      fs::rename(path, fs::path(folder) / name, ignored);
  }
  for (const fs::path& path : stale) fs::remove_all(path, ignored);
}

std::string own_name_of(const std::string& checkpoint) {
  const fs::path path(checkpoint);
  const std::string name = path.filename().string();
  if (name.rfind(kReplaced, 0) != 0) return checkpoint;
  return (path.parent_path() / name.substr(sizeof kReplaced - 1)).string();
}

Step reported_steps(const StateDict& rank) {
  for (const char* entry : {"reported", "model.step"})  // older checkpoints lack the first
    if (const auto steps = rank.integer(entry)) return *steps;
  return 0;
}

bool Checkpoint::is_lost(Rank rank) const {
  return std::binary_search(lost.begin(), lost.end(), rank);
}

template <class Value, class Read>
std::vector<Value> Checkpoint::by_rank(Read read) const {
  std::vector<Value> values(ranks.size());
  Value most{};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (!is_lost(static_cast<Rank>(rank))) most = std::max(most, values[rank] = read(ranks[rank]));
  for (const Rank rank : lost) values[static_cast<std::size_t>(rank)] = most;
  return values;
}

// Checkpoints of earlier programs do not say so.
Step taken_steps(const StateDict& rank) {
  const auto taken = rank.integer("deal_end");
  return taken ? *taken : reported_steps(rank);
}

namespace {

std::int64_t batches_in_view(const StateDict& rank) {
  const StateDict view = rank.under("view");
  const auto deal_step = view.integer("deal_step"), is_new = view.integer("deal_is_new");
  const Step first = deal_step ? *deal_step : 0, end = taken_steps(rank);
  const bool none = (is_new && *is_new == 1) || first < 0 || end < first;  // or it is damaged
  return none ? 0 : end - first;
}

}  // namespace

std::map<Rank, std::int64_t> Checkpoint::taken() const {
  std::map<Rank, std::int64_t> taken = lost_batches.taken;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (!is_lost(static_cast<Rank>(rank)))
      taken[static_cast<Rank>(rank)] = batches_in_view(ranks[rank]);
  return taken;
}

std::vector<Step> Checkpoint::steps() const {
  return by_rank<Step>([](const StateDict& rank) {
    const auto step = rank.integer("model.step");
    return step ? *step : Step{0};
  });
}

std::vector<Step> Checkpoint::reported() const { return by_rank<Step>(reported_steps); }

std::vector<double> Checkpoint::epochs() const {
  return by_rank<double>([](const StateDict& rank) {
    const auto epoch = rank.number("model.epoch");
    return epoch ? *epoch : 0.0;
  });
}

Expected<std::optional<SavedView>> Checkpoint::view() const {
  Rank first = 0;
  while (is_lost(first)) ++first;
  GRAPEVINE_CHECK(static_cast<std::size_t>(first) < ranks.size(), path, ": no rank has a state");
  auto view = load_view(ranks[static_cast<std::size_t>(first)], first);
  if (!view)
    return bad_input(path + ": rank " + std::to_string(first) + ": " + view.error().message +
                     ": it is damaged, use an older one");
  return view;
}

Expected<void> Checkpoint::change_ranks(std::int32_t count, Step first_step, double first_epoch) {
  const auto kept = std::min(static_cast<std::size_t>(count), ranks.size());
  if (std::all_of(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(kept),
                  [](const StateDict& state) { return state.entries().empty(); }))
    return bad_input(fmt::format("{}: ranks 0 to {} were lost and have no state: give more workers",
                                 path, kept - 1));
  SavedView start;
  start.number = 1;
  start.first_step = first_step;
  start.first_epoch = first_epoch;
  start.deal.ranks = static_cast<std::int32_t>(ranks.size());
  for (Rank rank = 0; rank < start.deal.ranks; ++rank) start.ranks.members.push_back(rank);
  for (const Rank rank : start.ranks.members) {
    StateDict& state = ranks[static_cast<std::size_t>(rank)];
    if (is_lost(rank) || !state.under("view").entries().empty()) continue;
    start.deal.position = rank;
    state.put_all("view", save(start));
  }
  for (Rank rank = count; rank < start.deal.ranks; ++rank) {
    Ledger ledger;
    const StateDict& state = ranks[static_cast<std::size_t>(rank)];
    if (!is_lost(rank)) lost_batches.taken[rank] = batches_in_view(state);
    if (is_lost(rank) || !ledger.load(state.under("ledger"))) continue;
    former.push_back({rank, ledger, ledger.samples});
  }
  for (Rank rank = start.deal.ranks; rank < count; ++rank) lost.push_back(rank);
  ranks.resize(static_cast<std::size_t>(count));
  lost.erase(std::lower_bound(lost.begin(), lost.end(), count), lost.end());
  return {};
}

Duration Checkpoint::elapsed() const {
  Duration longest{0};
  for (const StateDict& rank : ranks) {
    const auto elapsed = rank.integer("elapsed_ns");
    if (elapsed) longest = std::max(longest, Duration(*elapsed));
  }
  return longest;
}

// Not in checkpoints of earlier programs.
const std::set<std::string> kNewerKeys = {"classes", "model-crc32", "sample-shape",
                                          "training-samples"};

Expected<void> check_same_job(const JobIdentity& saved, const JobIdentity& present,
                              const std::string& path) {
  const auto differs = [&path](const std::string& key, const std::string& before,
                               const std::string& now) {
    return bad_input(without_control_characters("--resume " + path + ": " + key + " was " + before +
                                                ", now it is " + now + ": give the same options"));
  };
  for (const auto& [key, value] : present) {
    const auto it = saved.find(key);
    if (it == saved.end() && kNewerKeys.count(key) > 0) continue;
    const std::string before = it == saved.end() ? "(nothing)" : it->second;
    if (before != value) return differs(key, before, value);
  }
  for (const auto& [key, before] : saved)
    if (key != kStepsKey && present.count(key) == 0) return differs(key, before, "(nothing)");
  return {};
}

}  // namespace grapevine
