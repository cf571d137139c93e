#include "apps/control/status_json.hpp"

#include "actors/record/rank_figures.hpp"
#include "actors/run/supervision/waits/wait_chain.hpp"
#include "apps/console/json_text.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

const char* state_of(const RankStatus& rank) {
  if (rank.vacant) return "vacant";
  if (rank.lost) return "lost";
  if (!rank.answers) return "no answer";
  if (!rank.wait) return rank.finished ? "finished" : "idle";
  const WaitReport& wait = *rank.wait;
  if (wait.view > 0) return "changes members";
  if (wait.holds_messages_back || wait.worker == WorkerActivity::delayed) return "delayed";
  if (!wait.waits.empty()) return "waits";
  if (wait.worker == WorkerActivity::reading) return "reads";
  if (wait.worker == WorkerActivity::computing) return "computes";
  if (rank.finished) return "finished";
  return rank.serves ? "serves" : "idle";
}

ordered_json ledger_json(const Ledger& ledger) {
  return {{"produced", ledger.produced},
          {"applied", ledger.committed},
          {"pending", ledger.pending()},
          {"dropped", ledger.dropped}};
}

ordered_json waits_json(const RankStatus& rank) {
  ordered_json waits = ordered_json::array();
  if (!rank.wait) return waits;
  for (const Awaited& one : rank.wait->waits)
    waits.push_back({{"from", one.from < 0 ? ordered_json(nullptr) : ordered_json(one.from)},
                     {"message", text_of(one)}});
  return waits;
}

ordered_json rank_json(const RankStatus& rank, bool pairs) {
  ordered_json json = {{"rank", rank.rank},
                       {"process", rank.process},
                       {"state", state_of(rank)},
                       {"steps", rank.steps},
                       {"epoch", json_number(rank.epoch)},
                       {"steps_per_s", json_number(rank.steps_per_s)},
                       {"samples_per_s", json_number(rank.samples_per_s)},
                       {"loss", json_number(rank.loss)},
                       {"lr", json_number(rank.lr)},
                       {"staleness", json_number(rank.staleness)},
                       {"step_s", json_number(rank.step_s)},
                       {"exchange_s", json_number(rank.exchange_s)}};
  json["silent_s"] = rank.answers || rank.lost ? ordered_json(nullptr) : json_number(rank.silent_s);
  const bool waits = rank.wait && rank.wait->waiting_ns >= 0;
  json["waits_s"] =
      waits ? json_number(static_cast<double>(rank.wait->waiting_ns) / 1e9) : ordered_json(nullptr);
  json["waits_for"] = waits_json(rank);
  json["contributions"] = ledger_json(rank.ledger);
  json["bytes_sent"] = rank.ledger.bytes_sent;
  if (!pairs) return json;
  json["sent_to"] = ordered_json::object();
  for (const auto& [to, bytes] : rank.sent_bytes) json["sent_to"][std::to_string(to)] = bytes;
  json["waited_for_s"] = ordered_json::object();
  for (const auto& [from, time_ns] : rank.waited_ns)
    if (from != RankFigures::kNobody)
      json["waited_for_s"][std::to_string(from)] = static_cast<double>(time_ns) / 1e9;
  return json;
}

void add_totals(ordered_json& json, const RunStatus& status) {
  Ledger all = status.rested;
  for (const RankStatus& rank : status.ranks) all.merge(rank.ledger);
  const HistogramSummary staleness = summarize(all.staleness);
  json["staleness"] = {{"mean", staleness.mean}, {"p99", staleness.p99}, {"max", staleness.max}};
  json["contributions"] = ledger_json(all);
  json["contributions"]["pending"] = all.pending() - status.destroyed;
  json["contributions"]["destroyed"] = status.destroyed;
  json["bytes_sent"] = all.bytes_sent;
  json["queued_bytes"] = ordered_json::array();
  for (const std::int64_t bytes : status.queued_bytes)
    json["queued_bytes"].push_back(bytes < 0 ? ordered_json(nullptr) : ordered_json(bytes));
}

}  // namespace

ordered_json status_json(const RunStatus& status, const RunDescription& facts) {
  ordered_json json;
  const auto changed = status.settings.find(kAlgorithmSetting);
  json["run"] = {
      {"algorithm", changed == status.settings.end() ? facts.algorithm : changed->second},
      {"model", facts.model},
      {"data", facts.data},
      {"transport", facts.transport},
      {"out", facts.out},
      {"host", facts.host},
      {"pid", facts.pid},
      {"version", facts.version}};
  json["stage"] = status.stage;
  json["stopping"] = status.stopping;
  json["time_s"] = json_number(status.time_s);
  json["processes"] = status.processes;
  json["workers"] = status.workers;
  json["servers"] = status.servers;
  json["view"] = status.view;
  json["changes_members"] = status.changes_members;
  json["steps"] = status.steps;
  json["epochs"] = json_number(status.epochs);
  json["epochs_done"] = json_number(status.epochs_done);
  json["samples_per_s"] = json_number(status.samples_per_s);
  json["goodput"] = json_number(status.goodput);
  add_totals(json, status);
  json["checkpoint"] =
      status.checkpoint.empty() ? ordered_json(nullptr) : ordered_json(status.checkpoint);
  json["writes_checkpoint"] = status.writes_checkpoint;
  json["settings"] = status.settings;
  json["ranks"] = ordered_json::array();
  const bool pairs = status.ranks.size() <= kMostRanksInMatrix;
  for (const RankStatus& rank : status.ranks) json["ranks"].push_back(rank_json(rank, pairs));
  json["waits"] = status.waits;
  json["events"] = ordered_json::array();
  for (const RunEvent& event : status.events)
    json["events"].push_back(
        {{"time_s", json_number(event.time_s)}, {"kind", event.kind}, {"text", event.text}});
  return json;
}

}  // namespace grapevine
