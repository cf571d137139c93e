#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "actors/run/simulation/run_check.hpp"

namespace grapevine {
namespace {

constexpr Rank kLost = -1;

class VersionCheck final : public RunCheck {
 public:
  explicit VersionCheck(const CheckedRun& run) : RunCheck("version", run) {}

  void on_sent(Timestamp, const Envelope& message, std::uint64_t) override {
    const bool claims = std::holds_alternative<Grant>(message.payload) ||
                        std::holds_alternative<Receipt>(message.payload);
    if (!claims || !is_server(message.from)) return;
    Server& server = servers_[message.from];
    server.claimed = std::max(server.claimed, message.stamp.version);
  }

  void on_record(const TraceRecord& record) override {
    if (!is_server(record.rank)) return;
    // A server of another wiring, which counts from 0.
    const bool begins = record.kind == EventKind::view && record.peer == record.rank;
    if (begins) servers_[record.rank] = {};
    std::vector<Rank>& commits = servers_[record.rank].commits;
    // A client that returns has a copy without what its life before committed.
    if (record.kind == EventKind::view)
      std::replace(commits.begin(), commits.end(), record.peer, kLost);
    if (record.kind != EventKind::applied) return;
    const auto before = static_cast<std::int64_t>(commits.size());
    if (record.step != before + 1)
      report(fmt::format("server {} has version {} after {} commits", record.rank, record.step,
                         before + 1));
    if (record.version > before)
      report(fmt::format("server {} has a commit of rank {} with version {} after {} commits",
                         record.rank, record.peer, record.version, before));
    else if (record.version >= 0)
      check_staleness(record, commits);
    commits.push_back(record.peer);
  }

  void on_end(const RunResult& result) override {
    if (result.error) return;
    for (const auto& [rank, server] : servers_) {
      const auto commits = static_cast<std::int64_t>(server.commits.size());
      if (server.claimed > commits)
        report(fmt::format("server {} sent version {} and has {} commits", rank, server.claimed,
                           commits));
    }
  }

 private:
  struct Server {
    std::vector<Rank> commits;  // the clients, in their order; kLost: of one that is lost since
    Version claimed = 0;        // the newest in a message
  };

  bool is_server(Rank rank) const { return rank >= run().workers; }

  void check_staleness(const TraceRecord& record, const std::vector<Rank>& commits) {
    const auto others = std::count_if(commits.begin() + record.version, commits.end(),
                                      [&](Rank client) { return client != record.peer; });
    if (record.staleness != others)
      report(
          fmt::format("server {} has staleness {} for a commit of rank {}, and {} commits of "
                      "others since version {}",
                      record.rank, record.staleness, record.peer, others, record.version));
  }

  std::map<Rank, Server> servers_;
};

}  // namespace

std::unique_ptr<RunCheck> make_version_check(const CheckedRun& run) {
  return std::make_unique<VersionCheck>(run);
}

}  // namespace grapevine
