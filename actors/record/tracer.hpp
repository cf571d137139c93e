// Tracer: writes the message trace of one process as it comes, and hashes it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "actors/protocol.hpp"
#include "actors/record/trace_budget.hpp"
#include "messages/text/fnv1a.hpp"
#include "messages/trace/trace_file.hpp"

namespace grapevine {

// What a run records, and where.
struct TraceSettings {
  bool on = true;
  std::string folder;  // exists; empty: hash only
  // Of this process. The runtime sets ranks and zeros; until then zero_realtime_ns is the real time
  // at the zero of the monotonic clock.
  TraceHeader header;
  std::uint64_t limit = 0;  // bytes of this process's files, the oldest are removed; 0: none
  // In virtual time: ranks whose clocks are ahead, or behind. Each has a file of its own, with its
  // times by its clock, as a process on another machine has.
  std::map<Rank, Duration> skews = {};
  // Receives all records, those of a rank in order, on the tracer's thread; null: nobody does.
  std::function<void(const std::vector<TraceRecord>&)> watch = nullptr;
};

struct TracerConfig {
  TraceSettings settings;
  TraceOwner owner;  // receives TraceRefused and TraceClosed
  // Regains the records that were written; may be null.
  std::shared_ptr<TraceBudget> budget = nullptr;
  // Whether the trace shows that the process runs, every kPulseIntervalNs: not in virtual time.
  bool pulses = false;
};

class TracerState {
 public:
  const char* name = "tracer";

  void init(TracerActor::stateful_pointer<TracerState> self, TracerConfig config);
  void add(const TraceBatch& batch);
  void add(const ClockSample& sample);
  void add(const SettingsChange& change);
  void pulse();
  TraceClosed close();
  const TraceOwner& owner() const { return config_.owner; }

 private:
  struct Output {
    TraceFileWriter file;
    Duration skew{0};
    std::string held_back = {};
    std::string owed = {};      // comparisons and changes that were refused
    std::uint64_t refused = 0;  // records that are not in the file, which is to tell of them
    bool has_gap = false;       // something was refused since the last write
  };
  // What is handed to a file.
  struct Frames {
    const std::string& bytes;
    std::uint64_t records = 0;
    bool is_owed = false;  // if it is refused, it is written later
  };

  void add_skewed(TraceHeader header);
  template <class Repeated>
  void write_repeated(const Repeated& what);
  void write(Output& to, const Frames& frames);
  void put(Output& to, const Frames& frames);
  void refuse(Output& to, const Frames& frames);
  void close(Output& output);
  void note(const Error& failure);
  bool holds_back() const;
  std::int64_t now_ns() const;

  TracerActor::stateful_pointer<TracerState> self_ = nullptr;
  TracerConfig config_;
  std::optional<Output> own_;      // nothing: no file
  std::map<Rank, Output> skewed_;  // ranks with a file of their own
  // A run that takes no step leaves the trace of the one before it in its folder.
  bool other_run_there_ = false;
  bool stepped_ = false;              // a rank has taken a step
  std::uint64_t hash_ = kFnv1aStart;  // over the records' frames: equal runs have equal hashes
  std::uint64_t records_ = 0;
  std::uint64_t left_out_ = 0;  // that the file tells of
  std::uint64_t refused_ = 0;   // records, by the disk
  std::string error_;           // the first one
  std::string encoded_;         // scratch
};

// Takes records, clock samples and changes until CloseTrace, which it answers with TraceClosed.
// What a file refuses, as one on a full disk, is told at once (TraceRefused) and left out; what
// follows is written as soon as that is possible.
TracerActor::behavior_type tracer(TracerActor::stateful_pointer<TracerState> self,
                                  TracerConfig config);

}  // namespace grapevine
