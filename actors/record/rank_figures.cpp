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
  for (std::size_t i = 0; i < waited_.size(); ++i)
    if (waited_[i] > Duration::zero())
      figures.waited_ns[static_cast<Rank>(i) - 1] = waited_[i].count();
  for (std::size_t i = 0; i < sent_bytes_.size(); ++i)
    if (sent_bytes_[i] > 0) figures.sent_bytes[static_cast<Rank>(i)] = sent_bytes_[i];
  return figures;
}

}  // namespace grapevine
