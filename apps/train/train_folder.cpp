#include "apps/train/train_folder.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/record/files.hpp"
#include "actors/run/whole_epochs.hpp"
#include "apps/console/files/run_files.hpp"
#include "apps/train/job_file.hpp"
#include "apps/train/resume/earlier_validations.hpp"
#include "apps/train/train_trace.hpp"

namespace grapevine {
namespace {

// Errors of the files at the end of a run are found at its beginning where possible.
Expected<void> check_only_files_in_the_way(const std::string& out) {
  for (const char* name : {"summary.json", "model.pt", "metrics.csv", kJobFileName}) {
    std::error_code ignored;
    const std::filesystem::path path = std::filesystem::path(out) / name;
    const auto type = std::filesystem::status(path, ignored).type();
    if (type == std::filesystem::file_type::directory)
      return bad_input("--out " + out + ": " + path.string() +
                       " is a folder where a file is to be written: remove it or choose another "
                       "folder");
    if (type == std::filesystem::file_type::fifo || type == std::filesystem::file_type::socket)
      return bad_input("--out " + out + ": " + path.string() +
                       " is a pipe where a file is to be written: remove it or choose another "
                       "folder");
  }
  return {};
}

// Or an empty file, with nothing to lose.
bool begins_as_metrics(const std::filesystem::path& path) {
  const std::string start = "rank,epoch,step,";
  std::ifstream file(path, std::ios::binary);
  std::string text(start.size(), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return file.gcount() == 0 || text == start;
}

// The files of a run that failed without a checkpoint are beside its job.toml or summary.json, or
// begin as a run's do.
Expected<void> check_no_files_of_others(const std::string& out) {
  const std::filesystem::path folder = out;
  const auto summary = run_summary(out);
  const bool of_run = summary && (summary->contains("algorithm") || summary->contains("error"));
  if (of_run || is_job_file((folder / kJobFileName).string())) return {};
  for (const char* name : {"model.pt", "metrics.csv", "summary.json"}) {
    const std::filesystem::path path = folder / name;
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored) || begins_as_metrics(path)) continue;
    return bad_input("--out " + out + ": " + path.string() +
                     " was not written by a run, and would be replaced: move it, choose another "
                     "folder, or replace it with --overwrite");
  }
  return {};
}

void remove_stale(const std::string& out) {
  for (const char* folder : {"", "/trace", "/checkpoint"}) remove_stale_files(out + folder);
  remove_stale_checkpoints(out + "/checkpoint");
}

// The checkpoint was read before the folder belonged to this run: the run that had it may have
// written a newer one meanwhile, as its last act.
Expected<void> check_still_latest(TrainJob& job) {
  if (!continues_in_place(job)) return {};
  std::string& read = job.run.resume->path;
  read = own_name_of(read);
  const std::string& resume = job.options.resume;
  std::error_code unknown;
  const auto now = std::filesystem::canonical(checkpoint_at(resume), unknown);
  if (unknown || now == read) return {};
  return bad_input("--resume " + resume + ": the run there has written " + now.string() +
                   " since this one has read " + read + ": give the command again");
}

// Exclusive to this run, as long as it lasts.
Expected<void> take_folder(TrainJob& job) {
  if (auto free = check_only_files_in_the_way(job.out); !free) return free;
  if (auto own = check_job_file(job.out); !own) return own;
  std::error_code ignored;
  const std::filesystem::path result = std::filesystem::path(job.out) / "model.pt";
  if (std::filesystem::equivalent(job.options.model, result, ignored))
    return bad_input("--out " + job.out + ": the model that training begins with, " +
                     result.string() + ", would be replaced: choose another folder");
  if (auto writable = ensure_writable_directory(job.out); !writable) return writable;
  auto lock = lock_folder(job.out);
  if (!lock)
    return bad_input("--out " + lock.error().message + ": choose another folder, or wait for it");
  job.out_lock = *std::move(lock);
  return {};
}

// runs/<date>-<algorithm>; runs that start in the same second get a number as a suffix.
Expected<void> take_new_folder(TrainJob& job) {
  const std::string name = dated_folder(job.options.algorithm);
  std::error_code failure;
  std::filesystem::create_directories(std::filesystem::path(name).parent_path(), failure);
  job.out = name;
  for (int i = 2; !std::filesystem::create_directory(job.out, failure) && !failure; ++i)
    job.out = name + "-" + std::to_string(i);
  return take_folder(job);  // which reports its errors
}

// A link for itself; nothing where there is no such file.
std::optional<EarlierOutput> identify(const std::filesystem::path& path) {
  std::error_code ignored;
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return std::nullopt;
  // A device, or a link to one, is written directly.
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind == std::filesystem::file_type::character || kind == std::filesystem::file_type::block)
    return std::nullopt;
  constexpr std::int64_t kNsPerSecond = 1'000'000'000;
  return EarlierOutput{path, status.st_dev, status.st_ino,
                       status.st_mtim.tv_sec * kNsPerSecond + status.st_mtim.tv_nsec};
}

bool is_still_there(const EarlierOutput& output) {
  const auto now = identify(output.path);
  return now && now->device == output.device && now->inode == output.inode &&
         now->modified_ns == output.modified_ns;
}

bool is_folder(const EarlierOutput& output) {
  std::error_code ignored;
  return std::filesystem::symlink_status(output.path, ignored).type() ==
         std::filesystem::file_type::directory;
}

}  // namespace

bool has_summary(const std::string& out) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(out) / "summary.json", ignored);
}

bool has_finished(const std::string& out) {
  const auto summary = run_summary(out);
  return summary && !summary->contains("error");
}

bool has_checkpoint(const std::string& out) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(out) / "checkpoint" / "latest", ignored) ||
         !checkpoint_at(out + "/checkpoint").empty();
}

Expected<void> check_no_run_in(const std::string& out, bool overwrite) {
  if (out.empty() || overwrite) return {};
  const bool saved = has_checkpoint(out);
  if (!saved && !has_finished(out)) return check_no_files_of_others(out);
  return bad_input("--out " + out + ": holds a run: choose another folder, " +
                   (saved ? "continue it with --resume " + out + ", " : "") +
                   "or replace it with --overwrite");
}

Expected<void> make_folders(TrainJob& job) {
  const TrainOptions& o = job.options;
  job.out = given_folder(o);
  if (!job.is_head()) return {};
  if (!continues_in_place(job))
    if (auto free = check_no_run_in(job.out, o.overwrite); !free) return free;
  if (auto taken = job.out.empty() ? take_new_folder(job) : take_folder(job); !taken) return taken;
  remove_stale(job.out);
  if (auto same = check_still_latest(job); !same) return same;
  job.run.output_in_use =
      !continues_in_place(job) && (has_summary(job.out) || has_checkpoint(job.out));
  job.run.checkpoint_folder = job.out + "/checkpoint";
  job.run.checkpoint_every_epochs = o.checkpoint_every;
  auto kept = parse_kept_checkpoints(o.checkpoint_keep);
  if (!kept) return kept.error();
  job.run.kept_checkpoints = *kept;
  if (continues_in_place(job))
    job.run.earlier_validations =
        earlier_validations(job.out + "/metrics.csv", whole_epochs(job.run.resumed_most()));
  if (job.run.trace.on)
    if (auto placed = place_trace(job.out, job.run.resume.has_value(), job.run.trace); !placed)
      return placed;
  return ensure_writable_directory(job.run.checkpoint_folder);
}

bool continues_in_place(const TrainJob& job) {
  if (!job.run.resume) return false;
  std::error_code ignored;
  return std::filesystem::equivalent(std::filesystem::path(job.run.resume->path).parent_path(),
                                     std::filesystem::path(job.out) / "checkpoint", ignored);
}

std::vector<EarlierOutput> earlier_outputs(const std::string& out) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::vector<fs::path> old;
  for (const char* name : {"summary.json", "model.pt", "metrics.csv", kJobFileName})
    old.push_back(fs::path(out) / name);
  for (const char* link : {"latest", "best"}) old.push_back(fs::path(out) / "checkpoint" / link);
  for (const auto& entry : fs::directory_iterator(fs::path(out) / "checkpoint", ignored))
    if (fs::exists(entry.path() / "job.json", ignored) && !entry.is_symlink(ignored))
      old.push_back(entry.path());
  for (const auto& entry : fs::directory_iterator(fs::path(out) / "trace", ignored))
    if (entry.path().extension() == ".gvtrace") old.push_back(entry.path());
  for (const auto& run : fs::directory_iterator(fs::path(out) / "tensorboard", ignored)) {
    const std::string name = run.path().filename().string();
    if (name.rfind("rank-", 0) != 0 && name != "validation") continue;  // of another program
    for (const auto& entry : fs::directory_iterator(run.path(), ignored))
      if (entry.path().filename().string().rfind("events.out.tfevents.", 0) == 0)
        old.push_back(entry.path());
  }
  std::vector<EarlierOutput> outputs;
  for (const fs::path& path : old)
    if (auto found = identify(path)) outputs.push_back(*std::move(found));
  return outputs;
}

std::vector<EarlierOutput> earlier_summary(const std::string& out) {
  const auto found = identify(std::filesystem::path(out) / "summary.json");
  return found ? std::vector<EarlierOutput>{*found} : std::vector<EarlierOutput>();
}

std::vector<std::filesystem::path> hide_checkpoints(const std::vector<EarlierOutput>& outputs) {
  namespace fs = std::filesystem;
  std::vector<fs::path> folders;
  for (const EarlierOutput& output : outputs)
    if (is_folder(output) && is_still_there(output)) folders.push_back(output.path);
  if (folders.empty()) return folders;
  std::error_code failure;
  const fs::path newest = checkpoint_at(folders.front().parent_path().string());
  std::stable_partition(folders.begin(), folders.end(), [&](const fs::path& folder) {
    return !fs::equivalent(folder, newest, failure);
  });
  for (fs::path& folder : folders) {
    const fs::path hidden = folder.parent_path() / (kUnfinishedPrefix + folder.filename().string());
    fs::rename(folder, hidden, failure);
    if (failure) {
      fs::remove(folder / "job.json", failure);
    } else {
      folder = hidden;
    }
  }
  return folders;
}

void remove_outputs(const std::vector<EarlierOutput>& outputs) {
  std::error_code ignored;
  const std::vector<std::filesystem::path> checkpoints = hide_checkpoints(outputs);
  for (const EarlierOutput& output : outputs)
    if (!is_folder(output) && is_still_there(output)) std::filesystem::remove(output.path, ignored);
  for (const std::filesystem::path& folder : checkpoints)
    std::filesystem::remove_all(folder, ignored);
}

}  // namespace grapevine
