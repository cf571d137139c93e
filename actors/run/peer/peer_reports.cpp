// What a rank reports: records of the trace, steps, figures and models.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "actors/clock_time.hpp"
#include "actors/run/models/model_transfer.hpp"
#include "actors/run/peer.hpp"
#include "actors/run/whole_epochs.hpp"

namespace grapevine {
namespace {

// Records reach the tracer after this at most: a process that is killed leaves all older ones.
constexpr Duration kTraceDelay = std::chrono::milliseconds(200);

// A report fits into a message of the control plane, whatever a role measures: see
// kMostControlBytes.
StateDict short_measures(Rank rank, const StateDict& measures) {
  constexpr std::size_t kLongest = std::size_t{8} << 10;  // bytes of a list
  StateDict kept;
  for (const auto& [name, value] : measures.entries()) {
    const auto* list = std::get_if<at::Tensor>(&value);
    if (list == nullptr || list->nbytes() <= kLongest)
      kept.put(name, value);
    else
      spdlog::warn("rank {}: its figure '{}' has {} elements and is left out of the results", rank,
                   name, list->numel());
  }
  return kept;
}

}  // namespace

// By the clock of the process's trace, which began before training.
std::int64_t PeerState::trace_now() const {
  return clock_time(self_->clock()).count() - trace_zero_ns_;
}

void PeerState::flush_trace_in_time() {
  if (trace_.full()) return flush_trace();
  if (trace_.empty() || std::exchange(flush_is_due_, true)) return;
  self_->delayed_send(PeerActor{self_}, kTraceDelay, FlushTrace{});
}

void PeerState::on_flush_trace() {
  flush_is_due_ = false;
  flush_trace();
}

void PeerState::flush_trace() {
  if (trace_.empty()) return;
  std::vector<TraceRecord> records = trace_.take();
  if (!config_.trace_budget || config_.trace_budget->take(records.size()))
    self_->send(config_.tracer, TraceBatch{std::move(records)});
}

void PeerState::report_step() {
  const Timestamp done = now();
  const StepMeter::Measures measures = meter_.end_step(done);
  const Step step = last_gradient_.step;
  reported_ = step + 1;
  const Horizon& horizon = config_.parts->horizon;
  StepReport report;
  report.rank = config_.rank;
  report.step = step;
  report.logged = step % config_.log_every == 0 || step + 1 == horizon.steps;
  report.epoch = horizon.epoch_of(step);
  report.epochs_done = model_.epoch;
  report.time_s = to_seconds(elapsed_before_ + done);
  report.batch_time_s = measures.seconds;
  report.exchange_time_s = measures.waited_seconds;
  report.data_time_s = last_gradient_.data_seconds;
  report.loss = last_gradient_.loss;
  report.top1 = last_gradient_.top1;
  report.top5 = last_gradient_.top5;
  report.lr = model_.lr;
  report.staleness = measures.staleness;
  report.samples = last_gradient_.samples;
  report.view = member_.installed();
  report.taken = batches_taken();
  self_->send(config_.supervisor, report);
  send_epoch_models();
}

void PeerState::report_figures() { self_->send(config_.supervisor, figures_.with(ledger_)); }

// A worker beside servers.
bool PeerState::is_client() const { return !is_server() && config_.parts->plan.servers > 0; }

// Whether the validation takes the buffers of this rank: servers have none.
bool PeerState::serves_with_buffers() const {
  return is_client() && buffers_.defined() && config_.evaluator;
}

// Every planned epoch that has ended on this rank's clock is sent to the Evaluator, once: a
// clock that counts all ranks' gradients may run past the end. Where there are servers the model is
// theirs, and the workers' share in it are the buffers.
void PeerState::send_epoch_models() {
  const Horizon& horizon = config_.parts->horizon;
  const double planned = horizon.epoch_of(horizon.steps);
  const Epoch done = whole_epochs(std::min(model_.epoch, planned));
  for (; epochs_sent_ < done; ++epochs_sent_)
    if (config_.evaluator)
      send_model(epochs_sent_, is_client() ? FrozenTensor() : role_->debiased());
}

// Process 0 fetches models of other processes when it has the memory for them.
void PeerState::send_model(Epoch epoch, FrozenTensor z) {
  if (config_.models)
    self_->send(config_.evaluator, offer_model(epoch, std::move(z)));
  else
    self_->send(config_.evaluator, EpochModel{config_.rank, epoch, std::move(z), buffers_});
}

ModelOffer PeerState::offer_model(Epoch epoch, FrozenTensor z) {
  const ModelOffer offer{config_.rank, epoch, z.numel(), buffers_.numel(), config_.models};
  self_->send(config_.models, EpochModel{config_.rank, epoch, std::move(z), buffers_});
  return offer;
}

void PeerState::on_collect(bool with_model) {
  if (member_.is_closed()) {
    view_.collect = with_model;
    return leave_if_stranded();
  }
  RankReport report;
  report.rank = config_.rank;
  report.step = model_.step;
  report.w = model_.w;
  report.ledger = ledger_;
  flush_trace();
  if (with_model) {
    report_figures();
    report.measures = short_measures(config_.rank, role_->measures());
    if (const auto busy = meter_.gpu_busy()) report.measures.put(kGpuBusy, *busy);
    if (config_.models) {
      report.offer = offer_model(kLastModel, role_->debiased());
    } else {
      report.z = role_->debiased();
      report.buffers = buffers_;
    }
    report.step_seconds = meter_.step_seconds();
  }
  self_->send(config_.supervisor, std::move(report));
}

}  // namespace grapevine
