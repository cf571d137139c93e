#include "actors/record/ledger.hpp"

#include <limits>
#include <string>
#include <utility>

#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

using Histogram = std::map<std::int64_t, std::int64_t>;

// Adds the entries "<name>.<value>" of a saved ledger, with values from `least` on.
Expected<void> load_histogram(const StateDict& state, const std::string& name, std::int64_t least,
                              Histogram& histogram) {
  const StateDict entries = state.under(name);
  for (const auto& [text, saved] : entries.entries()) {
    const auto value = number_in<std::int64_t>(text);
    const auto* count = std::get_if<std::int64_t>(&saved);
    if (!value || *value < least || count == nullptr || *count < 0)
      return bad_input(
          "entry '" + name + "." + text +
          "' of the saved state is no count: the checkpoint is damaged, resume from another one");
    histogram[*value] = *count;
  }
  return {};
}

}  // namespace

std::int64_t coarse_age(std::int64_t age) {
  constexpr std::int64_t kExact = 128, kDigits = 64;
  if (age < kExact) return age;
  std::int64_t unit = 1;
  while (age / unit >= kDigits) unit *= 2;
  return age / unit * unit;
}

void Ledger::count(const Event& event) {
  switch (event.kind) {
    case EventKind::produced:
      ++produced;
      break;
    case EventKind::committed:
      ++committed;
      break;
    case EventKind::dropped:
      ++dropped;
      break;
    case EventKind::applied:
      ++staleness[coarse_age(event.staleness)];
      break;
    case EventKind::sent:
      ++sent;
      bytes_sent += event.bytes;
      break;
    case EventKind::received:
      ++received;
      break;
    case EventKind::contributed:
      ++contributed[coarse_age(event.staleness)];
      break;
    default:  // events of the trace alone
      break;
  }
}

void Ledger::merge(const Ledger& other) {
  produced += other.produced;
  committed += other.committed;
  dropped += other.dropped;
  samples += other.samples;
  sent += other.sent;
  received += other.received;
  sent_before += other.sent_before;
  bytes_sent += other.bytes_sent;
  for (const auto& [value, count] : other.staleness) staleness[value] += count;
  for (const auto& [value, count] : other.contributed) contributed[value] += count;
}

StateDict Ledger::save() const {
  StateDict state;
  state.put("produced", produced);
  state.put("committed", committed);
  state.put("dropped", dropped);
  state.put("samples", samples);
  state.put("messages_sent", sent_before + sent);
  state.put("bytes_sent", static_cast<std::int64_t>(bytes_sent));
  for (const auto& [value, count] : staleness)
    state.put("staleness." + std::to_string(value), count);
  for (const auto& [value, count] : contributed)
    state.put("joined." + std::to_string(value), count);
  return state;
}

Expected<void> Ledger::load(const StateDict& state) {
  const auto count = [&state](const char* name) {
    return state.integer_in(name, 0, std::numeric_limits<std::int64_t>::max());
  };
  const auto in_produced = count("produced"), in_committed = count("committed"),
             in_dropped = count("dropped"), in_bytes = count("bytes_sent"),
             in_sent = count("messages_sent"), in_samples = count("samples");
  for (const auto* field :
       {&in_produced, &in_committed, &in_dropped, &in_bytes, &in_sent, &in_samples})
    if (!*field) return field->error();
  // Subtracted, since the sum may exceed 64 bits.
  if (*in_dropped > *in_produced - *in_committed)
    return bad_input(
        "the saved state has more gradients committed (" + std::to_string(*in_committed) +
        ") and dropped (" + std::to_string(*in_dropped) + ") than produced (" +
        std::to_string(*in_produced) + "): the checkpoint is damaged, resume from another one");
  produced = *in_produced;
  committed = *in_committed;
  dropped = *in_dropped;
  bytes_sent = static_cast<std::uint64_t>(*in_bytes);
  sent_before = *in_sent;
  samples = *in_samples;
  if (auto loaded = load_histogram(state, "staleness", 0, staleness); !loaded) return loaded;
  return load_histogram(state, "joined", -1, contributed);
}

HistogramSummary summarize(const std::map<std::int64_t, std::int64_t>& histogram) {
  std::int64_t total = 0;
  double sum = 0;
  for (const auto& [value, count] : histogram) {
    total += count;
    sum += static_cast<double>(value) * static_cast<double>(count);
  }
  HistogramSummary summary;
  if (total == 0) return summary;
  summary.mean = sum / static_cast<double>(total);
  summary.max = histogram.rbegin()->first;
  // Nearest-rank percentiles.
  std::int64_t seen = 0;
  bool have_median = false;
  for (const auto& [value, count] : histogram) {
    seen += count;
    if (!have_median && 2 * seen >= total) {
      summary.p50 = value;
      have_median = true;
    }
    if (100 * seen >= 99 * total) {
      summary.p99 = value;
      break;
    }
  }
  return summary;
}

}  // namespace grapevine
