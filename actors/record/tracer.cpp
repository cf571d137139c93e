#include "actors/record/tracer.hpp"

#include <filesystem>

namespace grapevine {

void TracerState::open() {
  if (config.path.empty()) return;
  auto created = AtomicFile::create(config.path);
  if (!created) {
    error = created.error().message;
    return;
  }
  file = std::make_unique<AtomicFile>(std::move(*created));
  file->stream() << encode_trace_header();
}

void TracerState::add(const TraceBatch& batch) {
  encoded.clear();
  for (const TraceRecord& record : batch.records) {
    append_encoded(encoded, record);
    stepped = stepped || record.kind == EventKind::step_done;
  }
  hash.add(encoded);
  records += batch.records.size();
  if (file) file->stream() << encoded;
  if (config.budget) config.budget->give_back(batch.records.size());
}

TraceClosed TracerState::close() {
  std::error_code ignored;
  // A run that took no step leaves the trace of the one before it.
  if (file && !stepped && std::filesystem::exists(config.path, ignored)) file.reset();
  if (file) {
    const auto committed = file->commit();
    if (!committed) error = committed.error().message;
    file.reset();
  }
  return {hash.value(), records, error, config.budget ? config.budget->dropped() : 0};
}

TracerActor::behavior_type tracer(TracerActor::stateful_pointer<TracerState> self,
                                  TracerConfig config) {
  self->state.config = std::move(config);
  self->state.open();
  return {
      [self](const TraceBatch& batch) { self->state.add(batch); },
      [self](CloseTrace) { self->send(self->state.config.owner, self->state.close()); },
  };
}

}  // namespace grapevine
