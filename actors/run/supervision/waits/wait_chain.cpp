#include "actors/run/supervision/waits/wait_chain.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace grapevine {
namespace {

using Root = WaitChain::Root;
using Ranks = std::map<Rank, RankWait>;

constexpr std::size_t kLinksShown = 4;  // of a chain

// Whole seconds, as a person reads them.
std::string seconds(std::int64_t ns) {
  return fmt::format("{:.0f} s", static_cast<double>(ns) / 1e9);
}

Root own_root(const RankWait& rank) {
  if (!rank.report) return rank.finished ? Root::finished : Root::no_answer;
  const WaitReport& report = *rank.report;
  if (report.holds_messages_back) return Root::delayed;
  if (report.view > 0) return awaits_state(report) ? Root::receives_state : Root::changes_members;
  if (report.computing_ns < 0) return rank.finished ? Root::finished : Root::idle;
  if (report.worker == WorkerActivity::delayed) return Root::delayed;
  return report.worker == WorkerActivity::reading ? Root::reads : Root::computes;
}

// Whether the chain continues beyond it. With overlap a rank waits and computes: it waits.
bool waits(const RankWait& rank) {
  return rank.report && rank.report->view == 0 && !rank.report->holds_messages_back &&
         !rank.report->waits.empty();
}

// The rank whose state another one waits for, where it does not answer or has still to give it. A
// donor hands all parts to its transport at once: after the first one it may be in another view.
std::optional<Rank> donor_of(const RankWait& rank, const Ranks& ranks) {
  if (!rank.report || !awaits_state(*rank.report)) return std::nullopt;
  const Awaited& next = rank.report->waits.front();
  const auto donor = ranks.find(next.from);
  if (donor == ranks.end()) return std::nullopt;
  const std::optional<WaitReport>& report = donor->second.report;
  const bool has_given = report && (next.part >= 0 || report->view == 0);
  return has_given ? std::nullopt : std::optional<Rank>(donor->first);
}

// How much a rank explains of a wait for it, as the rank that is furthest from an answer.
enum class Explains { little, waits, computes, changes_members, silent };
std::pair<Explains, std::int64_t> weight(const RankWait& rank) {
  if (!rank.report) return {Explains::silent, rank.silent.count()};
  if (rank.report->view > 0) return {Explains::changes_members, 0};
  if (waits(rank)) return {Explains::waits, rank.report->waiting_ns};
  if (rank.report->computing_ns >= 0) return {Explains::computes, rank.report->computing_ns};
  return {Explains::little, 0};
}

// Where any of several ranks may send a message, those that cannot at the moment count.
std::optional<Rank> next_of(Rank waiter, const Ranks& ranks) {
  std::optional<Rank> next;
  const auto consider = [&](Rank rank, Explains least) {
    const auto found = ranks.find(rank);
    if (found == ranks.end() || rank == waiter || weight(found->second).first < least) return;
    if (!next || weight(found->second) > weight(ranks.at(*next))) next = rank;
  };
  for (const Awaited& one : ranks.at(waiter).report->waits) {
    if (one.from >= 0) consider(one.from, Explains::little);
    if (one.from < 0)
      for (const auto& entry : ranks) consider(entry.first, Explains::computes);
  }
  return next;
}

std::string name_of_rank(Rank rank, const Ranks& ranks, std::int32_t processes) {
  return processes == 1 ? fmt::format("rank {}", rank)
                        : fmt::format("rank {} of process {}", rank, ranks.at(rank).process);
}

// The message that the chain follows.
const Awaited& awaited_from(const WaitReport& report, Rank from) {
  const auto found = std::find_if(report.waits.begin(), report.waits.end(),
                                  [from](const Awaited& one) { return one.from == from; });
  return found == report.waits.end() ? report.waits.front() : *found;
}

std::string link_text(Rank rank, Rank next, const Ranks& ranks) {
  const WaitReport& report = *ranks.at(rank).report;
  const std::string message = text_of(awaited_from(report, next));
  if (report.waiting_ns < 0) return fmt::format("rank {} waits for {}", rank, message);
  return fmt::format("rank {} has waited {} for {}", rank, seconds(report.waiting_ns), message);
}

std::string root_text(const WaitChain& chain, const Ranks& ranks, std::int32_t processes) {
  const Rank root = chain.ranks.back();
  const RankWait& rank = ranks.at(root);
  const std::string name = name_of_rank(root, ranks, processes);
  switch (chain.root) {
    case Root::computes:
      return fmt::format("{} has computed step {} for {}", name, rank.report->computing,
                         seconds(rank.report->computing_ns));
    case Root::reads:
      return fmt::format("{} has waited for the data of step {} for {}", name,
                         rank.report->computing, seconds(rank.report->computing_ns));
    case Root::delayed:
      return fmt::format("{} is held back by an injected delay", name);
    case Root::changes_members:
      return fmt::format("{} changes to view {} of the members", name, rank.report->view);
    case Root::receives_state: {
      const Awaited& next = rank.report->waits.front();
      const std::string since = seconds(rank.report->waiting_ns);
      if (next.part < 0)
        return fmt::format("{} has waited {} for the state of rank {}", name, since, next.from);
      return fmt::format("{} receives the state of rank {}: {} of {} parts, the last one {} ago",
                         name, next.from, next.part - 1, next.parts, since);
    }
    case Root::no_answer:
      return fmt::format(
          "{} has not answered for {}: its process is stopped or overloaded, or "
          "cannot be reached",
          name, seconds(rank.silent.count()));
    case Root::idle:
      return name + " neither waits nor computes" +
             (chain.ranks.size() > 1 ? ": the message is lost or on its way" : "");
    case Root::finished:
      return fmt::format("{} has taken its last step", name);
    case Root::circle:
      return fmt::format("{} waits in turn: these ranks wait for each other", name);
    case Root::unknown:
      return "any of several ranks may send it";
  }
  return name;
}

}  // namespace

bool awaits_state(const WaitReport& report) {
  return report.view > 0 && report.waits.size() == 1 &&
         report.waits.front().payload == PayloadKind::state_chunk;
}

WaitChain find_wait_chain(Rank from, const Ranks& ranks) {
  WaitChain chain;
  chain.ranks.push_back(from);
  for (;;) {
    const RankWait& rank = ranks.at(chain.ranks.back());
    const auto donor = donor_of(rank, ranks);
    if (!donor && !waits(rank)) {
      chain.root = own_root(rank);
      return chain;
    }
    const auto next = donor ? donor : next_of(chain.ranks.back(), ranks);
    if (!next) {
      chain.root = Root::unknown;
      return chain;
    }
    const bool met = std::find(chain.ranks.begin(), chain.ranks.end(), *next) != chain.ranks.end();
    chain.ranks.push_back(*next);
    if (met) {
      chain.root = Root::circle;
      return chain;
    }
  }
}

std::string text_of(const WaitChain& chain, const Ranks& ranks, std::int32_t processes) {
  std::string text;
  const std::size_t links = chain.ranks.size() - 1;
  for (std::size_t i = 0; i < links; ++i) {
    const bool left_out =
        links > kLinksShown && i >= kLinksShown / 2 && i + kLinksShown / 2 < links;
    if (left_out && i == kLinksShown / 2)
      text += fmt::format("{} more ranks; ", links - kLinksShown);
    if (!left_out) text += link_text(chain.ranks[i], chain.ranks[i + 1], ranks) + "; ";
  }
  if (chain.root == Root::unknown) text += link_text(chain.ranks.back(), -1, ranks) + "; ";
  return text + root_text(chain, ranks, processes);
}

std::string text_of(const Awaited& awaited) {
  std::string text = name_of(awaited.payload);
  if (awaited.payload == PayloadKind::none) text = "a message";
  if (awaited.payload == PayloadKind::activate) text = "the start";
  if (awaited.part > 0) text += fmt::format(" {}/{}", awaited.part, awaited.parts);
  if (awaited.operation >= 0) {
    const bool round = awaited.payload == PayloadKind::share;
    const bool exchange = awaited.payload == PayloadKind::grant ||
                          awaited.payload == PayloadKind::commit ||
                          awaited.payload == PayloadKind::receipt;
    text += fmt::format(" of {} {}",
                        round      ? "round"
                        : exchange ? "exchange"
                                   : "operation",
                        awaited.operation);
  }
  return text + (awaited.from < 0 ? " from any rank" : fmt::format(" from rank {}", awaited.from));
}

}  // namespace grapevine
