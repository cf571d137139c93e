#include "actors/record/checkpoints/job_json.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace grapevine {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxRanks = 1'000'000;

// Throws json::exception for any other number, such as 1e300, which no whole number has room for.
std::int64_t whole(const json& number) { return number.get_ref<const json::number_integer_t&>(); }

// Throws json::exception where the document is not one of write_files().
Expected<std::vector<Rank>> lost_in(const json& job, std::int64_t ranks) {
  std::vector<Rank> lost;
  if (job.count("lost") == 0) return lost;
  for (const json& entry : job["lost"]) {
    const std::int64_t rank = whole(entry);
    if (rank < 0 || rank >= ranks || (!lost.empty() && rank <= lost.back()))
      return bad_input("lost is no ascending list of ranks");
    lost.push_back(static_cast<Rank>(rank));
  }
  if (static_cast<std::int64_t>(lost.size()) == ranks) return bad_input("all ranks are lost");
  return lost;
}

// Throws json::exception where the document is not one of write_files().
Expected<std::vector<FormerLife>> former_in(const json& job) {
  std::vector<FormerLife> former;
  if (job.count("former") == 0) return former;
  for (const json& entry : job["former"]) {
    FormerLife life;
    const std::int64_t rank = whole(entry.at("rank"));
    if (rank < 0 || rank >= kMaxRanks) return bad_input("former has a rank of no run");
    life.rank = static_cast<Rank>(rank);
    life.samples = whole(entry.at("samples"));
    life.ledger.produced = whole(entry.at("produced"));
    life.ledger.committed = whole(entry.at("committed"));
    life.ledger.dropped = whole(entry.at("dropped"));
    for (const std::int64_t count :
         {life.samples, life.ledger.produced, life.ledger.committed, life.ledger.dropped})
      if (count < 0) return bad_input("former has a count below 0");
    // Subtracted, since the sum of committed and dropped may exceed 64 bits.
    if (life.ledger.dropped > life.ledger.produced - life.ledger.committed)
      return bad_input("former has more gradients committed and dropped than produced");
    if (entry.count("staleness") > 0) {
      const std::int64_t messages = whole(entry.at("messages")), bytes = whole(entry.at("bytes"));
      if (messages < 0 || bytes < 0) return bad_input("former has a count below 0");
      life.ledger.sent_before = messages;
      life.ledger.bytes_sent = static_cast<std::uint64_t>(bytes);
      for (const json& pair : entry.at("staleness")) {
        const std::int64_t age = whole(pair.at(0)), count = whole(pair.at(1));
        if (age < 0 || count < 0) return bad_input("former has a count below 0");
        life.ledger.staleness[age] = count;
      }
    }
    former.push_back(std::move(life));
  }
  return former;
}

// More than any run has, so that sums have room.
constexpr std::int64_t kMostBatches = std::int64_t{1} << 50;

// The entry `name` of "batches". Throws json::exception where it is no list of runs.
Expected<std::vector<BatchTally::Named>> runs_in(const json& batches, const char* name) {
  std::vector<BatchTally::Named> runs;
  for (const json& entry : batches.at(name)) {
    const BatchTally::Named named{whole(entry.at(0)),
                                  {whole(entry.at(1)), whole(entry.at(2)), whole(entry.at(3))}};
    for (const std::int64_t count : {named.epoch, named.run.first, named.run.count})
      if (count < 0) return bad_input("batches has a count below 0");
    if (named.run.stride < 1) return bad_input("batches has a stride below 1");
    if (runs.size() < BatchTally::kMostNamed) runs.push_back(named);
  }
  return runs;
}

// Throws json::exception where the document is not one of write_files().
Expected<BatchTally> batches_in(const json& job) {
  BatchTally tally;
  if (job.count("batches") == 0) return tally;
  const json& batches = job["batches"];
  tally.left_out = whole(batches.at("left_out"));
  tally.again = whole(batches.at("taken_again"));
  for (const std::int64_t count : {tally.left_out, tally.again})
    if (count < 0 || count > kMostBatches) return bad_input("batches has counts of no run");
  auto left_out = runs_in(batches, "left_out_runs"), again = runs_in(batches, "taken_again_runs");
  if (!left_out) return left_out.error();
  if (!again) return again.error();
  tally.left_out_runs = *std::move(left_out);
  tally.again_runs = *std::move(again);
  return tally;
}

// Whether `value` is 0 to `most`.
bool is_count(std::int64_t value, std::int64_t most) { return value >= 0 && value <= most; }

// Nothing in checkpoints of versions that wrote none. Throws json::exception where the document is
// not one of write_files().
Expected<BatchesOfLost> lost_batches_in(const json& job) {
  BatchesOfLost lost;
  if (job.count("lost_batches") == 0) return lost;
  const json& batches = job["lost_batches"];
  for (const json& entry : batches.at("ahead")) {
    const BatchRun run{whole(entry.at(0)), whole(entry.at(1)), whole(entry.at(2))};
    if (!is_count(run.first, kMostBatches) || !is_count(run.count, BatchesOfLost::kMostAhead) ||
        !is_count(run.stride, kMaxRanks) || run.stride == 0)
      return bad_input("lost_batches has batches of no run");
    lost.ahead.push_back(run);
  }
  for (const json& entry : batches.at("taken")) {
    const std::int64_t rank = whole(entry.at(0)), taken = whole(entry.at(1));
    if (!is_count(rank, kMaxRanks - 1) || !is_count(taken, kMostBatches / kMaxRanks))
      return bad_input("lost_batches has batches of no rank");
    lost.taken[static_cast<Rank>(rank)] = taken;
  }
  return lost;
}

// By rank; nothing in checkpoints of versions that wrote none. Throws json::exception where the
// document is not one of write_files().
Expected<RankMarks> marks_of(const json& job, const std::vector<Rank>& lost) {
  RankMarks marks(static_cast<std::size_t>(whole(job["ranks"])));
  if (job.count("files") == 0) return marks;
  for (std::size_t rank = 0; rank < marks.size(); ++rank) {
    if (std::binary_search(lost.begin(), lost.end(), static_cast<Rank>(rank))) continue;
    const json& file = job["files"].at(rank_file(rank));
    if (whole(file.at("bytes")) < 0 || whole(file.at("crc32")) < 0)
      return bad_input("files has a number below 0 for " + rank_file(rank));
    marks[rank] = mark_in(file);
  }
  return marks;
}

}  // namespace

FileMark mark_in(const json& file) {
  return {static_cast<std::uint64_t>(whole(file.at("bytes"))),
          static_cast<std::uint32_t>(whole(file.at("crc32")))};
}

Expected<RankMarks> parse_job_json(const std::string& text, const std::string& path,
                                   Checkpoint& checkpoint) {
  const auto damaged = [&path](const std::string& what) {
    return bad_input(path + ": damaged: " + what + "; use an older checkpoint");
  };
  try {
    const json job = json::parse(text);
    if (whole(job.at("version")) != kCheckpointVersion)
      return bad_input(path + ": version " + job.at("version").dump() + ", expected " +
                       std::to_string(kCheckpointVersion) + ": use the program that wrote it");
    const std::int64_t ranks = whole(job.at("ranks"));
    if (ranks < 1 || ranks > kMaxRanks)
      return damaged("ranks is " + std::to_string(ranks) + ", expected 1.." +
                     std::to_string(kMaxRanks));
    auto lost = lost_in(job, ranks);
    if (!lost) return damaged(lost.error().message);
    checkpoint.lost = *std::move(lost);
    auto former = former_in(job);
    if (!former) return damaged(former.error().message);
    checkpoint.former = *std::move(former);
    auto batches = batches_in(job);
    if (!batches) return damaged(batches.error().message);
    checkpoint.batches = *std::move(batches);
    auto lost_batches = lost_batches_in(job);
    if (!lost_batches) return damaged(lost_batches.error().message);
    checkpoint.lost_batches = *std::move(lost_batches);
    auto marks = marks_of(job, checkpoint.lost);
    if (!marks) return damaged(marks.error().message);
    checkpoint.identity = job.at("job").get<JobIdentity>();
    return marks;
  } catch (const std::exception&) {  // of the parser
    return damaged("expected version, ranks, job");
  }
}

}  // namespace grapevine
