#include "apps/simulate/campaign_files.hpp"

#include <filesystem>
#include <ostream>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "messages/check.hpp"

namespace grapevine {
namespace {

constexpr char kTableHeading[] =
    "seed,failed,events,virtual_seconds,trace_hash,faults,violations\n";

// Of a list or a sentence: in quotes, which it has twice.
std::string csv_cell(const std::string& text) {
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? "\"\"" : c == '\n' ? " " : std::string(1, c);
  return cell + "\"";
}

std::string table_row(std::int64_t seed, const SeedVerdict& verdict) {
  std::string violations;
  for (const std::string& one : verdict.violations)
    violations += (violations.empty() ? "" : "; ") + one;
  return fmt::format("{},{},{},{:.9g},{},{},{}\n", seed, verdict.violations.empty() ? 0 : 1,
                     verdict.events, verdict.virtual_seconds, verdict.hash,
                     csv_cell(verdict.faults), csv_cell(violations));
}

// Errors (bad_input): as CampaignFiles::create().
Expected<FolderLock> take_campaign_folder(const std::string& out, bool overwrite) {
  if (auto writable = ensure_writable_directory(out); !writable) return writable.error();
  auto lock = lock_folder(out);
  if (!lock)
    return bad_input("--out " + lock.error().message + ": choose another folder, or wait for it");
  remove_stale_files(out);  // of a campaign that was interrupted
  if (overwrite) return lock;
  std::error_code error;
  const bool empty = std::filesystem::is_empty(out, error);
  if (error)
    return bad_input("--out " + out + ": cannot be read: " + error.message() +
                     "; check its rights, or choose another folder");
  if (empty) return lock;
  return bad_input("--out " + out +
                   ": has files: choose another folder for the campaign, or replace its seeds.csv "
                   "and campaign.json with --overwrite");
}

// The user chose the path.
Expected<AtomicFile> create_in(const std::string& out, const char* name) {
  auto file = AtomicFile::create(std::filesystem::path(out) / name);
  if (!file) return bad_input("--out " + out + ": " + file.error().message);
  return file;
}

}  // namespace

CampaignFiles::CampaignFiles(FolderLock lock, AtomicFile table, AtomicFile figures,
                             std::int64_t first)
    : lock_(std::move(lock)), table_(std::move(table)), figures_(std::move(figures)), next_(first) {
  table_.stream() << kTableHeading;
}

Expected<CampaignFiles> CampaignFiles::create(const std::string& out, bool overwrite,
                                              std::int64_t first) {
  auto lock = take_campaign_folder(out, overwrite);
  if (!lock) return lock.error();
  auto table = create_in(out, "seeds.csv");
  if (!table) return table.error();
  auto figures = create_in(out, "campaign.json");
  if (!figures) return figures.error();
  return CampaignFiles(*std::move(lock), *std::move(table), *std::move(figures), first);
}

void CampaignFiles::add(std::int64_t seed, const SeedVerdict& verdict) {
  GRAPEVINE_CHECK(seed >= next_, seed, next_);
  kept_[seed] = table_row(seed, verdict);
  for (auto row = kept_.begin(); row != kept_.end() && row->first == next_; ++next_) {
    table_.stream() << row->second;
    row = kept_.erase(row);
  }
}

Expected<void> CampaignFiles::commit(const std::string& figures) {
  GRAPEVINE_CHECK(kept_.empty(), kept_.begin()->first, next_);
  figures_.stream() << figures;
  for (AtomicFile* file : {&table_, &figures_})
    if (auto flushed = file->flush(); !flushed) return flushed;
  for (AtomicFile* file : {&table_, &figures_})
    if (auto committed = file->commit(); !committed) return committed;
  return {};
}

}  // namespace grapevine
