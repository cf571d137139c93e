// Tracer: writes the message trace of one process and hashes it.
#pragma once
#include <memory>
#include <string>

#include "actors/protocol.hpp"
#include "actors/record/files.hpp"
#include "actors/record/trace_budget.hpp"

namespace grapevine {

struct TracerConfig {
  std::string path;  // empty: hash only
  TraceOwner owner;  // receives TraceClosed
  // Regains the bytes that were written; may be null.
  std::shared_ptr<TraceBudget> budget = nullptr;
};

struct TracerState {
  const char* name = "tracer";
  TracerConfig config;
  std::unique_ptr<AtomicFile> file;
  TraceHash hash;
  std::uint64_t records = 0;
  bool stepped = false;  // a rank has taken a step
  std::string error;
  std::string encoded;  // scratch

  void open();
  void add(const TraceBatch& batch);
  TraceClosed close();
};

// Takes TraceBatches until CloseTrace, which it answers with TraceClosed.
TracerActor::behavior_type tracer(TracerActor::stateful_pointer<TracerState> self,
                                  TracerConfig config);

}  // namespace grapevine
