#include "actors/record/checkpoints/checkpoint_keeper.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "actors/record/files.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr char kBestLink[] = "best";
constexpr char kLatestLink[] = "latest";
constexpr char kFinal[] = "final";
constexpr Epoch kNoEpoch = -1;

// The epoch whose end "epoch-0003" is, from 0; nothing for other names.
std::optional<Epoch> epoch_of_checkpoint(const fs::path& path) {
  long long number = 0;
  int length = 0;
  const std::string name = path.filename().string();
  const bool named = std::sscanf(name.c_str(), "epoch-%lld%n", &number, &length) == 1;
  if (!named || static_cast<std::size_t>(length) != name.size() || number < 1) return std::nullopt;
  return static_cast<Epoch>(number - 1);
}

}  // namespace

Expected<KeptCheckpoints> parse_kept_checkpoints(const std::string& text) {
  KeptCheckpoints kept;
  kept.all = text == "all";
  kept.best = text == "best";
  if (kept.all || kept.best || text == "latest") return kept;
  kept.newest = number_in<decltype(kept.newest)>(text).value_or(0);
  if (kept.newest >= 1) return kept;
  return bad_input("--checkpoint-keep " + text +
                   ": expected best (and the newest), latest, all, or a number of the newest ones, "
                   "at least 1");
}

bool better(const Evaluation& one, const Evaluation& other) {
  if (std::isfinite(one.top1) && std::isfinite(other.top1) && one.top1 != other.top1)
    return one.top1 > other.top1;
  return one.loss < other.loss;
}

void CheckpointKeeper::add_earlier(const std::map<Epoch, Evaluation>& validations,
                                   const std::string& resumed, bool longer) {
  std::error_code none;
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  for (const auto& entry : fs::directory_iterator(folder_, none))
    if (!entry.is_symlink(none) && fs::exists(entry.path() / "job.json", none))
      found.emplace_back(fs::last_write_time(entry.path(), none), entry.path());
  std::sort(found.begin(), found.end());
  for (const auto& [time, path] : found) checkpoints_[written_++] = path;
  validations_ = validations;
  const bool from_final = fs::path(resumed).filename() == kFinal;
  if (from_final && !longer) return;  // it is that of the same end
  // One that this run does not continue from is of steps that are taken again.
  if (from_final) earlier_final_ = epoch_of(folder_ / kFinal);
  final_is_earlier_ = true;
}

void CheckpointKeeper::before_checkpoint(const std::string& name) {
  if (name == kFinal) name_earlier_final();
}

// Otherwise the state of its epoch, which may be the best one, would go with the name.
void CheckpointKeeper::name_earlier_final() {
  if (!final_is_earlier_ || !earlier_final_) return;
  const fs::path own = folder_ / kFinal;
  const fs::path name = fmt::format("epoch-{:04d}", *earlier_final_ + 1);
  earlier_final_.reset();
  std::error_code error;
  std::vector<fs::path> links;
  for (const char* link : {kLatestLink, kBestLink})
    if (fs::read_symlink(folder_ / link, error) == kFinal) links.push_back(folder_ / link);
  fs::rename(own, folder_ / name, error);
  if (error) return spdlog::warn("{}: cannot be renamed: {}", own.string(), error.message());
  for (auto& [number, path] : checkpoints_)
    if (path == own) path = folder_ / name;
  for (const fs::path& link : links)
    if (auto linked = replace_symlink_atomically(name, link); !linked)
      spdlog::warn("{}", linked.error().message);
}

void CheckpointKeeper::on_checkpoint(const std::string& path) {
  const fs::path own = folder_ / fs::path(path).filename();
  if (own.filename() == kFinal)
    final_is_earlier_ = false;
  else
    name_earlier_final();
  for (auto it = checkpoints_.begin(); it != checkpoints_.end();)
    it = it->second.filename() == own.filename() ? checkpoints_.erase(it) : std::next(it);
  checkpoints_[written_++] = own;
  remove_others();
}

void CheckpointKeeper::on_validation(Epoch epoch, const Evaluation& evaluation) {
  validations_[epoch] = evaluation;
  remove_others();
}

// The checkpoint of the end of a run belongs to the last validation, unless that epoch has one of
// its own.
std::optional<Epoch> CheckpointKeeper::epoch_of(const fs::path& checkpoint) const {
  if (checkpoint.filename() != kFinal || validations_.empty())
    return epoch_of_checkpoint(checkpoint);
  if (final_is_earlier_) return earlier_final_;
  const Epoch last = validations_.rbegin()->first;
  for (const auto& [number, path] : checkpoints_)
    if (epoch_of_checkpoint(path) == last) return std::nullopt;
  return last;
}

// Of the validated epochs that have a checkpoint.
std::optional<Epoch> CheckpointKeeper::best_epoch() const {
  std::optional<Epoch> best;
  for (const auto& [number, path] : checkpoints_) {
    const auto epoch = epoch_of(path);
    if (!epoch || validations_.count(*epoch) == 0) continue;
    if (!best || better(validations_.at(*epoch), validations_.at(*best))) best = epoch;
  }
  return best;
}

void CheckpointKeeper::remove_others() {
  if (kept_.all || checkpoints_.empty()) return;
  const Epoch best = kept_.best ? best_epoch().value_or(kNoEpoch) : kNoEpoch;
  const Epoch validated = validations_.empty() ? -1 : validations_.rbegin()->first;
  std::int64_t newer = static_cast<std::int64_t>(checkpoints_.size());
  for (auto it = checkpoints_.begin(); it != checkpoints_.end(); --newer) {
    const fs::path path = it->second;
    const auto epoch = epoch_of(path);
    if (epoch && *epoch == best)
      if (auto linked = replace_symlink_atomically(path.filename(), folder_ / kBestLink); !linked)
        spdlog::warn("{}", linked.error().message);
    // A validation that is still to come may make it the best one.
    const bool awaited = kept_.best && validates_ && epoch && *epoch > validated;
    if (newer <= kept_.newest || awaited || (epoch && *epoch == best)) {
      ++it;
      continue;
    }
    std::error_code ignored;  // files that cannot be removed stay
    fs::remove_all(path, ignored);
    it = checkpoints_.erase(it);
  }
}

}  // namespace grapevine
