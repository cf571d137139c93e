#include "actors/record/rank_figures.hpp"

namespace grapevine {

bool LiveFigures::due(Timestamp now) {
  if (now - reported_ < kInterval) return false;
  reported_ = now;
  return true;
}

RankFigures LiveFigures::with(const Ledger& ledger) const {
  RankFigures figures;
  figures.rank = rank_;
  figures.view = view_;
  figures.ledger = ledger;
  for (const auto& [rank, wait] : waited_)
    if (wait > Duration::zero()) figures.waited_ns[rank] = wait.count();
  for (const auto& [rank, bytes] : sent_bytes_)
    if (bytes > 0) figures.sent_bytes[rank] = bytes;
  return figures;
}

}  // namespace grapevine
